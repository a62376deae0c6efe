"""What a worker announces of the output that it has written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.metrics.events import Event, OutputEvent, WarningEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.outputs import COPY_LIMIT_ENV_VAR
from llmops_kernel.train.checkpoints import output
from llmops_kernel.train.checkpoints.output import Trained
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.model.origin import Origin


class Saves:
    """A trainer and a tokenizer that write one small file each."""

    model_wrapped = autocast = None
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.accelerator = self.args = self

    def unwrap_model(self, model: None) -> None:
        return model

    def save_model(self, folder: str) -> None:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "adapter_model.safetensors").write_bytes(b"weights")

    def save_pretrained(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{}")


def save(context: WorkerContext, config: Any) -> None:
    """As at the end of a training, of something that cannot be compared."""
    output.save(
        Saves(),
        tokenizer=Saves(),
        config=config,
        context=context,
        figures={},
        trained=Trained([], None, 0, why_not="it is no model"),
        origin=Origin("tiny-llama", config),
    )


@pytest.fixture
def announced(tmp_path: Path, make_config: Callable[..., Any]) -> Callable[..., OutputEvent]:
    def saved(visible: Path | None, **sections: Any) -> OutputEvent:
        said: list[Event] = []
        context = WorkerContext(
            run_id="r",
            folder=tmp_path / "run",
            workspace=tmp_path,
            visible=visible,
            journal=JournalWriter([tmp_path / "journal"], stream="1-worker-0", attempt=1),
            say=said.append,
        )
        save(context, make_config(**{"method": "lora", **sections}))
        warning, event = said
        assert isinstance(warning, WarningEvent)
        assert "not compared with what was trained: it is no model" in warning.message
        assert isinstance(event, OutputEvent)
        return event

    return saved


def test_an_adapter_that_only_this_node_has_is_offered(
    announced: Callable[..., OutputEvent], tmp_path: Path
) -> None:
    event = announced(tmp_path / "logs")
    assert (event.place, event.what) == ("node", "adapter")
    names = {file.name for file in event.files}
    assert names == {
        *("adapter_model.safetensors", "tokenizer.json", "config.train.yaml", "README.md"),
    }
    assert sum(file.size_bytes for file in event.files) == event.size_bytes
    assert len(list((tmp_path / "logs/outputs").iterdir())) == 4


def test_a_larger_one_is_announced_as_one_that_is_only_there(
    announced: Callable[..., OutputEvent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COPY_LIMIT_ENV_VAR, "10")
    event = announced(tmp_path / "logs")
    assert (event.place, event.files) == ("node", ())
    assert event.size_bytes is not None
    assert event.size_bytes > 10


def test_what_is_kept_elsewhere_is_not_offered(
    announced: Callable[..., OutputEvent], tmp_path: Path
) -> None:
    event = announced(tmp_path / "logs", output={"url": str(tmp_path / "kept")})
    assert (event.path, event.place, event.files) == (str(tmp_path / "kept/r"), "", ())
    assert not (tmp_path / "logs").exists()


def test_in_the_clients_own_folder_there_is_nothing_to_copy(
    announced: Callable[..., OutputEvent], tmp_path: Path
) -> None:
    event = announced(None)
    assert (event.path, event.place, event.files) == (str(tmp_path / "run/output"), "", ())
