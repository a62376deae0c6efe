"""The Makefile's promises that can be kept without installing anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = ("demo", "lab", "doctor", "check", "test", "test-all", "docs", "dist", "clean", "help")


def _make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_help_lists_every_target() -> None:
    shown = _make("help").stdout
    for target in TARGETS:
        assert f"make {target} " in shown


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A clone in which every step of the installation has left its stamp."""
    (tmp_path / "llmops_kernel").mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "llmops_kernel/version.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    stamps = tmp_path / ".venv" / ".stamps"
    stamps.mkdir(parents=True)
    for stamp in ("venv", "torch", "deepspeed", "package"):
        (stamps / stamp).touch()
    return tmp_path


def test_a_second_make_installs_nothing(installed: Path) -> None:
    assert "pip-install" not in _make("-n", "install", folder=installed).stdout


def test_new_pins_are_installed(installed: Path) -> None:
    import os
    import time

    later_s = time.time() + 5
    os.utime(installed / "constraints.txt", (later_s, later_s))
    planned = _make("-n", "install", folder=installed).stdout
    words = ("torch==", "deepspeed", "[train,lab,kubernetes,agents,test]")
    order = [planned.index(word) for word in words]
    assert order == sorted(order)


def test_no_suitable_python_is_reported(installed: Path) -> None:
    shutil.rmtree(installed / ".venv")
    done = _make("install", "PYTHON=", folder=installed)
    assert done.returncode != 0
    assert "Python 3.11" in done.stderr
    assert "apt-get install python3" in done.stderr


def test_a_failed_install_shows_pips_own_words(tmp_path: Path) -> None:
    log = tmp_path / "install.log"
    command = [ROOT / ".ci/pip-install", sys.executable, log, "--no-index", "no-such-package"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no-such-package" in done.stderr
    assert "no-such-package" in log.read_text()


@pytest.mark.parametrize("script", ["run", "test", "pip-install"])
def test_scripts_are_right_bash(script: str) -> None:
    done = subprocess.run(
        ["bash", "-n", ROOT / ".ci" / script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
