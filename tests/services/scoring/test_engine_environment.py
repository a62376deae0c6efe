"""Whoever submits a scoring gets vLLM's environment first, or a reason: from every door."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmops_kernel import api, score_env
from llmops_kernel.api import Run
from llmops_kernel.cli.main import main
from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import ClusterUnreachableError, MissingDependencyError
from llmops_kernel.kinds.score_config import effect
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState, Connection
from llmops_kernel.score_env import MADE
from llmops_kernel.services.backend import Backend, use
from llmops_kernel.services.submission import from_config
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

CONFIG = {
    "name": "tags",
    "model": "tiny-llama",
    "input": "rows.jsonl",
    "prompt": "{text}",
    "engine": "vllm",
}


class Ready(LocalProvider):
    """Says that its cluster is ready; there is none."""

    def names(self) -> tuple[str, ...]:
        return ("lab",)

    def get(self, name: str) -> ClusterInfo:
        return ClusterInfo(name=name, provider="local", state=ClusterState.READY)

    def connect(self, name: str) -> Connection:
        raise ClusterUnreachableError(f"{name} was asked", remedy="start it")


@pytest.fixture
def backend(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setenv(score_env.ENV_VAR, str(tmp_path / "mine"))
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "x.score.yaml").write_text(json.dumps(CONFIG))
    made = Backend(store=RunStore(), providers=lambda: [Ready()])
    with use(made):
        yield made


def submit(_: Backend, path: Path, **settings: object) -> object:
    return api.cluster("lab").submit(path, **settings)


def score(_: Backend, path: Path, **settings: object) -> object:
    return api.cluster("lab").score(path, **settings)


def resubmit(backend: Backend, path: Path, **settings: object) -> object:
    config = from_config(path).config.model_dump(mode="json")
    record = RunRecord(
        run_id="tags-1",
        name="tags",
        kind="score",
        created_s=1.0,
        cluster="lab",
        config=config,
        workspace_root=str(path.parent),
    )
    backend.store.create(record, config_yaml="")
    return Run(backend, "tags-1").resubmit(**settings)


@pytest.mark.parametrize("door", [submit, score, resubmit])
def test_python(backend: Backend, tmp_path: Path, door: Callable[..., object]) -> None:
    path = tmp_path / "x.score.yaml"
    with pytest.raises(MissingDependencyError, match=score_env.ENV_VAR):
        door(backend, path)
    assert {*backend.store.ids()} <= {"tags-1"}


@pytest.mark.parametrize("door", [submit, score])
def test_nothing_is_made_where_it_is_there_or_not_needed(
    backend: Backend, tmp_path: Path, door: Callable[..., object]
) -> None:
    path = tmp_path / "x.score.yaml"
    with pytest.raises(ClusterUnreachableError, match="lab was asked"):
        door(backend, path, overrides=["engine.type=transformers"])
    score_env.python().parent.mkdir(parents=True)
    score_env.python().symlink_to(sys.executable)
    with pytest.raises(ClusterUnreachableError, match="lab was asked"):
        door(backend, path)


def test_auto_makes_no_environment_and_says_what_answers(backend: Backend, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(ClusterUnreachableError, match="lab was asked"):
        api.cluster("lab").submit(
            tmp_path / "x.score.yaml", overrides=["engine.type=auto"], progress=said.append
        )
    assert [line for line in said if "Transformers" in line and "llmops score-env" in line]
    assert not score_env.python().exists()


def test_whoever_wants_transformers_instead_gets_no_environment(
    backend: Backend, tmp_path: Path
) -> None:
    with pytest.raises(ClusterUnreachableError):
        score(backend, tmp_path / "x.score.yaml", make_env=False)


@pytest.mark.parametrize("command", ["submit", "score"])
def test_the_command_line(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    words = [command, str(tmp_path / "x.score.yaml"), "--cluster", "lab"]
    with pytest.raises(SystemExit):
        main(words, backend=backend)
    assert score_env.ENV_VAR in capsys.readouterr().err


def test_without_progress_its_lines_are_logged(
    backend: Backend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody waits minutes for something unknown. The venv module is not there: nothing is made."""
    monkeypatch.delenv(score_env.ENV_VAR)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MissingDependencyError, match="cannot be made"):
        submit(backend, tmp_path / "x.score.yaml")
    assert "an environment for vLLM in" in caplog.text
    assert not (score_env.path() / MADE).exists()


def test_a_config_says_it_before_it_is_submitted(backend: Backend, tmp_path: Path) -> None:
    config = ScoreConfig.model_validate(CONFIG)
    assert any("is made first" in line for line in effect(config))
    auto = ScoreConfig.model_validate({**CONFIG, "engine": "auto"})
    assert any("Transformers answers" in line for line in effect(auto))
    other = ScoreConfig.model_validate({**CONFIG, "engine": "transformers"})
    assert not any("4 GB" in line for line in effect(other))
