"""Which model a run has made, and which run `last` is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, RunNotFoundError, RunStateError
from llmops_kernel.metrics.events import CheckpointEvent
from llmops_kernel.services.scoring.model import (
    run_with_model,
    trained_model,
    with_model,
    with_start,
)
from llmops_kernel.store.store import RunStore
from tests.score.chat.trained import add_trained_run
from tests.server.runs import make_run, worker


def test_last_is_the_newest_run_with_a_model(store: RunStore, tmp_path: Path) -> None:
    old = add_trained_run(store, tmp_path, run_id="old-260101-120000-aaaa", created_s=1)
    new = add_trained_run(store, tmp_path, run_id="new-260102-120000-bbbb", created_s=2)
    other = add_trained_run(store, None, run_id="none-260103-120000-cccc", created_s=3)
    assert trained_model("last", store).run_id == new
    assert run_with_model("last", store) == new
    assert run_with_model("old", store) == old
    assert run_with_model(other, store) == other
    with pytest.raises(RunStateError, match="has written no model"):
        trained_model(other, store)


def test_without_any_model_the_remedy_is_to_train_one(store: RunStore) -> None:
    with pytest.raises(RunNotFoundError):
        run_with_model("last", store)
    only = add_trained_run(store, None)
    assert run_with_model("last", store) == only, "its own error says what is missing"
    with pytest.raises(RunStateError) as raised:
        trained_model("last", store)
    assert "llmops submit" in raised.value.remedy


@pytest.mark.parametrize(("what", "is_adapter"), [("adapter", True), ("model", False)])
def test_a_config_gets_the_model_of_its_run(
    store: RunStore, tmp_path: Path, what: str, is_adapter: bool
) -> None:
    run_id = add_trained_run(store, tmp_path / "out", what=what)
    values = {"model": {"run": "last", "adapter": "stale"}, "input": "x.jsonl", "prompt": "{a}"}
    model = with_model(ScoreConfig.model_validate(values), store).model
    assert model.run == run_id
    assert model.id == ("tiny-llama" if is_adapter else str(tmp_path / "out"))
    assert model.adapter == (str(tmp_path / "out") if is_adapter else "")


def test_the_base_of_an_adapter_that_was_trained_further(store: RunStore, tmp_path: Path) -> None:
    """The config's model is another adapter then."""
    add_trained_run(store, tmp_path, model="/first/output", base="org/base", base_revision="v2")
    found = trained_model("last", store)
    assert (found.base, found.revision) == ("org/base", "v2")


def test_a_base_that_only_the_adapter_knows(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "owner/base"})
    )
    add_trained_run(store, tmp_path, model="")
    assert trained_model("last", store).base == "owner/base"


def test_a_base_that_nobody_knows_is_asked_for(store: RunStore, tmp_path: Path) -> None:
    add_trained_run(store, tmp_path / "gone", model="")
    config = ScoreConfig.model_validate(
        {"model": {"run": "last"}, "input": "x.jsonl", "prompt": "{a}"}
    )
    with pytest.raises(RunStateError, match="base model of run"):
        with_model(config, store)


def begun(store: RunStore, objective: str = "sft", **model: object) -> TrainingConfig:
    values = {"model": model, "data": "rows.jsonl", "objective": objective}
    return with_start(TrainingConfig.model_validate(values), store)


def test_a_training_begins_with_the_result_of_a_run(store: RunStore, tmp_path: Path) -> None:
    run_id = add_trained_run(store, tmp_path / "out")
    for objective in ("sft", "dpo", "classify"):
        model = begun(store, objective, run="last").model
        assert (model.id, model.run) == (str(tmp_path / "out"), run_id)
    again = begun(store, run=run_id, id=str(tmp_path / "out"))  # As its record has it.
    assert again.model.id == str(tmp_path / "out")
    based = begun(store, run=run_id, id="tiny-llama")  # What the run itself began with.
    assert based.model.id == str(tmp_path / "out")
    assert begun(store, id="tiny-llama").model.run is None


def test_a_training_compares_with_the_result_of_a_run(store: RunStore, tmp_path: Path) -> None:
    run_id = add_trained_run(store, tmp_path / "out")
    values = {"type": "dpo", "reference": "last"}
    training = {"model": "tiny-llama", "data": "rows.jsonl", "objective": values}
    config = with_start(TrainingConfig.model_validate(training), store)
    assert config.objective.has_other_reference
    assert config.objective.model_dump()["reference"] == {
        "run": run_id,
        "id": str(tmp_path / "out"),
    }
    assert config.model.id == "tiny-llama"
    make_run(store, "labels-1", steps=1, config={"objective": {"type": "classify"}})
    training["objective"] = {"type": "dpo", "reference": {"run": "labels-1"}}
    with pytest.raises(RunStateError, match="its objective is classify"):
        with_start(TrainingConfig.model_validate(training), store)


def test_it_begins_with_a_checkpoint_that_has_a_model(store: RunStore, tmp_path: Path) -> None:
    make_run(store, "first-1", steps=4)
    folder = tmp_path / "checkpoint-2"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"")
    writer = worker(store, "first-1", attempt=2)
    for step, path in ((2, folder), (4, tmp_path / "checkpoint-4")):
        writer.emit(CheckpointEvent(step=step, path=str(path)))
    writer.close()
    assert begun(store, run="first-1", step=2).model.id == str(folder)
    with pytest.raises(RunStateError, match="no checkpoint with a model at step 4") as raised:
        begun(store, run="first-1", step=4)
    assert raised.value.remedy.startswith("its checkpoints: 2")


@pytest.mark.parametrize(
    ("objective", "task", "remedy"),
    [
        ("embed", "embed", ""),
        ("embed", "generate", "set task.type to embed"),
        ("classify", "classify", ""),
        ("classify", {"type": "classify", "choices": ["a", "b"]}, "without task.choices"),
        ("classify", "embed", "set task.type to classify"),
        ("regress", "value", ""),
        ("reward", "value", ""),
        ("reward", "classify", "set task.type to value"),
        ("dpo", "embed", ""),
        ("dpo", {"type": "classify", "choices": ["a", "b"]}, ""),
        ("dpo", "classify", "classify with task.choices"),
        ("sft", "value", "set task.type to generate"),
    ],
)
def test_a_run_is_scored_by_the_tasks_of_its_objective(
    store: RunStore, tmp_path: Path, objective: str, task: object, remedy: str
) -> None:
    add_trained_run(store, tmp_path / "out", objective=objective)
    values = {"model": {"run": "last"}, "input": "x.jsonl", "prompt": "{a}", "task": task}
    config = ScoreConfig.model_validate(values)
    if not remedy:
        assert with_model(config, store).model.adapter == str(tmp_path / "out")
        return
    with pytest.raises(RunStateError, match=f"its objective is {objective}") as raised:
        with_model(config, store)
    assert remedy in raised.value.remedy


def test_a_start_that_cannot_be_meant_is_refused(store: RunStore, tmp_path: Path) -> None:
    add_trained_run(store, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"model\.id is other"):
        begun(store, run="last", id="other")
    make_run(store, "labels-1", steps=1, config={"objective": {"type": "classify"}})
    with pytest.raises(RunStateError, match="its objective is classify"):
        begun(store, "dpo", run="labels-1")
    with pytest.raises(RunStateError, match="its objective is classify"):
        begun(store, "dpo", run="labels-1", step=1)
    with pytest.raises(RunStateError, match="writes no text"):
        trained_model("labels-1", store)
    assert begun(store, "classify", run="labels-1").model.run == "labels-1"
