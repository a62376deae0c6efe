"""Binder installs what everybody installs: the pins of constraints.txt."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from tests.checks import pins

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"


def test_binder_takes_its_versions_from_constraints() -> None:
    lines = [
        line
        for line in (BINDER / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "-c ../constraints.txt"
    assert (BINDER / "../constraints.txt").resolve() == pins.FILE
    # Bare names: a version here would be a second truth.
    assert set(lines[1:]) <= set(pins.pinned(pins.FILE.read_text()))


def test_every_install_of_binder_is_constrained() -> None:
    script = (BINDER / "postBuild").read_text()
    installs = re.findall(r"^.*\bpip install.*$", script, flags=re.MULTILINE)
    assert len(installs) == 4
    for line in installs:
        assert "-c constraints.txt" in line
        assert "==" not in line
    assert (BINDER / "postBuild").stat().st_mode & stat.S_IXUSR


def test_binder_has_a_compiler_and_a_python_that_fits() -> None:
    from packaging.specifiers import SpecifierSet

    assert "g++" in (BINDER / "apt.txt").read_text().split()
    python = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
    asked = re.search(r'requires-python = "(.*)"', (ROOT / "pyproject.toml").read_text())
    assert asked is not None
    assert SpecifierSet(asked[1]).contains(python)


@pytest.mark.parametrize("name", ["ray", "torch", "transformers", "deepspeed", "peft"])
def test_exact_requirements_agree_with_the_pins(name: str) -> None:
    """pyproject pins what breaks easily; constraints.txt must not say otherwise."""
    pinned = pins.pinned(pins.FILE.read_text())
    assert f"{name}=={pinned[name]}" in (ROOT / "pyproject.toml").read_text().replace(
        "[default]", ""
    )
