"""Installs the built wheel and sdist as strangers would: `python -m tests.packaging.cold_hands`.

Each time in a sandbox of its own (bubblewrap) that has the system and a Python, but no compiler, no
git, no Node.js, none of our files and an empty home; then with a read-only home, then as another
user. What was installed must start, check a config, train a tiny model, serve Lab and agents. Needs
`make dist`, `apt-get install bubblewrap` and a package index; each log is kept below --logs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HIDDEN = ("*gcc*", "*g++*", "cc", "c++", "clang*", "git", "node", "npm", "make", "docker")
PINS = ("-c", "/dist/constraints.txt")
TINY = """\
name: cold
model: tiny-llama
data: rows.jsonl
training: {micro_batch_size: 2, global_batch_size: 2, max_steps: 3}
"""
ROWS = "".join(f'{{"text": "number {n} follows number {n - 1}"}}\\n' for n in range(16))
WRITE = f"printf '{ROWS}' > rows.jsonl && cat > cold.train.yaml <<'END'\n{TINY}END"
CLIENT = (
    "llmops --version",
    "llmops init --example chat chat && llmops check --quick chat/chat.train.yaml",
    "llmops runs && llmops runs --json && llmops schema --of runs > /dev/null",
    "llmops cluster init kind-cpu --kind kind-cpu && llmops cluster render kind-cpu | head -n 5",
)
TRAIN = (
    WRITE,
    "llmops doctor || true",
    "llmops check cold.train.yaml",
    "llmops up && llmops submit cold.train.yaml --follow && llmops show last",
    "llmops reproduce last",
    "llmops down",
)
LAB = (
    "jupyter labextension list 2>&1 | grep '@llmops/lab.*OK'",
    "jupyter server extension list 2>&1 | grep 'llmops_kernel.server.*OK'",
)
AGENT = ("llmops mcp --help > /dev/null && llmops mcp --skill | head -n 3",)


@dataclass(frozen=True)
class Case:
    """An installation by somebody."""

    name: str
    file: str
    """Pattern of the file below dist/."""
    python: str
    extras: str = ""
    commands: Sequence[str] = CLIENT
    uid: int = 0
    is_home_writable: bool = True


CASES = (
    Case("client", "*.whl", "3.12", "", CLIENT),
    Case("train-from-sdist", "*.tar.gz", "3.11", "[train]", (*CLIENT, *TRAIN)),
    Case("lab-as-another-user", "*.whl", "3.13", "[train,lab]", (*LAB, *TRAIN), uid=1000),
    Case("home-read-only", "*.whl", "3.11", "[train]", TRAIN, is_home_writable=False),
    Case("agents-and-kubernetes", "*.whl", "3.13", "[agents,kubernetes]", (*CLIENT, *AGENT)),
)


def run(case: Case, python: Path, folder: Path, log: Path) -> int:
    """Install and try it in a sandbox; return the exit code of the first command that fails."""
    for name in ("home", "work", "tmp"):
        (folder / name).mkdir(parents=True)
    (file,) = (ROOT / "dist").glob(case.file)
    # pip keeps the wheels that it builds in the home, and fails where it cannot.
    elsewhere = "PIP_NO_CACHE_DIR=1 LLMOPS_HOME=/project/runs LLMOPS_CACHE=/project/cache"
    script = [
        "set -eu; umask 022; cd /project",
        "" if case.is_home_writable else f"export {elsewhere}",
        f"{python} -m venv env && . env/bin/activate",
        f"pip install --quiet {' '.join(PINS)} '/dist/{file.name}{case.extras}'",
    ]
    for command in case.commands:
        script += [f"echo '$ '{_quoted(command)}", command]
    with log.open("w") as out:
        command = [*_sandbox(case, python, folder), "bash", "-c", "\n".join(script)]
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False)
    return done.returncode


def _quoted(text: str) -> str:
    return "'" + text.partition("\n")[0].replace("'", "'\\''") + "'"


def _sandbox(case: Case, python: Path, folder: Path) -> list[str]:
    """Return bubblewrap's command line: own processes, files and user; the network is shared."""
    home = "--bind" if case.is_home_writable else "--ro-bind"
    words = ["bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--clearenv"]
    words += ["--uid", str(case.uid), "--gid", str(case.uid), "--proc", "/proc", "--dev", "/dev"]
    for name in ("usr", "bin", "lib", "lib64", "sbin", "etc", "opt"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            words += ["--ro-bind", str(path), str(path)]
    base = python.resolve().parents[1]  # Where an interpreter of pyenv or uv has its library.
    if not base.is_relative_to("/usr"):
        words += ["--ro-bind", str(base), str(base)]
    programs = [Path(folder) for folder in ("/usr/bin", "/usr/local/bin")]
    hidden = {path.resolve() for each in programs for name in HIDDEN for path in each.glob(name)}
    for path in sorted(hidden):
        words += ["--ro-bind", "/dev/null", str(path)]
    words += ["--ro-bind", str(ROOT / "dist"), "/dist", home, str(folder / "home"), "/me"]
    words += ["--bind", str(folder / "work"), "/project", "--bind", str(folder / "tmp"), "/tmp"]
    words += ["--tmpfs", "/dev/shm"]
    variables = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    variables |= {"HOME": "/me", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    for key, value in variables.items():
        words += ["--setenv", key, value]
    return words


def _interpreter(version: str) -> Path | None:
    """Return a Python of that release; those of pyenv count as installed."""
    for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        return path
    path = shutil.which(f"python{version}")
    return Path(path) if path else None


def main() -> int:
    """Try all, or those named; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases, all by default")
    parser.add_argument("--logs", type=Path, default=Path("test-artifacts/cold-hands"))
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/cold-hands"))
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "constraints.txt", ROOT / "dist")
    failed = 0
    for case in CASES:
        python = _interpreter(case.python)
        if options.names and case.name not in options.names:
            continue
        if python is None:
            print(f"{case.name}: no Python {case.python} here", flush=True)
            failed += 1
            continue
        begun_s, folder = time.monotonic(), options.work / case.name
        shutil.rmtree(folder, ignore_errors=True)
        log = options.logs / f"{case.name}.log"
        code = run(case, python, folder, log)
        failed += code != 0
        taken_s = time.monotonic() - begun_s
        print(f"{case.name}: exit {code} after {taken_s:.0f} s, {log}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
