"""Chats whose template rewrites earlier answers: in a run, in a stream, in previews and checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import Event
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.preview_job import PreviewJob
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.check import checked
from llmops_kernel.train.data.dataset import Dataset, load_dataset
from llmops_kernel.train.data.examples import IGNORED
from llmops_kernel.train.data.preview.work import Preview
from llmops_kernel.train.data.sources import DataSources
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.views.preview_facts import facts
from tests.chat_templates import STYLES, Style, save_tiny

Config = Callable[..., Any]
TURNS = (("user", "2+2?"), ("assistant", "four"), ("user", "3+3?"), ("assistant", "six"))
ROW = {"messages": [{"role": role, "content": content} for role, content in TURNS]}
ANSWERS = [f"<|channel|>final<|message|>{answer}<|return|>" for answer in ("four", "six")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chats.jsonl").write_text((json.dumps(ROW) + "\n") * 8)
    return tmp_path


def saved(folder: Path, style: Style, make_config: Config, **data: Any) -> tuple[Any, Any]:
    tokenizer = save_tiny(folder / "model", style)
    config = make_config(model=str(folder / "model"), data={"train": "chats.jsonl", **data})
    return tokenizer, config


def loaded(config: Any, tokenizer: Any, folder: Path) -> tuple[Dataset, list[str]]:
    said: list[Event] = []
    journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    context = WorkerContext(
        run_id="t", folder=folder, workspace=folder, journal=journal, say=said.append,
        cache=folder / "cache",
    )  # fmt: skip
    found = load_dataset(
        config,
        DataSources(config.data, context.roots),
        tokenizer=tokenizer,
        hooks=Hooks(),
        context=context,
    )
    journal.close()
    return found, [getattr(one, "message", "") for one in said if one.kind == "warning"]


def answers(tokenizer: Any, found: Any) -> list[str]:
    return [tokenizer.decode([t for t in one.labels if t != IGNORED]) for one in found]


def test_a_run_trains_each_answer_and_says_so(folder: Path, make_config: Config) -> None:
    tokenizer, config = saved(folder, STYLES["harmony"], make_config)
    found, said = loaded(config, tokenizer, folder)
    assert answers(tokenizer, found.train) == ANSWERS * 8
    assert (found.num_rows, found.num_tokens) == (8, sum(len(x.input_ids) for x in found.train))
    (one,) = said
    assert one.startswith("8 chats with several answers became several sequences each")


def test_a_stream_counts_the_sequences(folder: Path, make_config: Config) -> None:
    tokenizer, config = saved(folder, STYLES["harmony"], make_config, streaming=True)
    plain = config.model_copy(update={"training": config.training.model_copy(
        update={"max_steps": None, "epochs": 1.0})})  # fmt: skip
    found, _ = loaded(plain, tokenizer, folder)
    assert found.stream is not None
    try:
        assert found.stream.total_steps == 4  # Of four sequences each: 16, not 8.
        assert answers(tokenizer, found.sample)[:4] == ANSWERS * 2
    finally:
        found.stream.rows.close()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_names_a_template_without_ends(
    folder: Path, make_config: Config, streaming: bool
) -> None:
    tokenizer, config = saved(folder, STYLES["no end"], make_config, streaming=streaming)
    found, said = loaded(config, tokenizer, folder)
    if found.stream is not None:
        found.stream.rows.close()
    (one,) = said
    assert "writes nothing that ends an answer" in one


def test_a_preview_shows_each_sequence(folder: Path, make_config: Config) -> None:
    _, config = saved(folder, STYLES["harmony"], make_config, max_length=50)
    job = PreviewJob.model_validate(
        {"config": config.model_dump(mode="json"), "workspace": str(folder), "num_shown": 1}
    )
    preview = Preview(job).all()
    assert (preview.train.num_apart, preview.train.num_split) == (8, 0)
    assert (preview.train.num_sequences, preview.train.num_cut) == (8, 8)  # The second is cut.
    (row,) = preview.rows
    shown = {
        kind: "".join(piece.text for piece in row.pieces if piece.kind == kind)
        for kind in ("loss", "cut")
    }
    assert shown["loss"] == ANSWERS[0]
    assert shown["cut"].endswith("six<|return|>")
    texts = {one.label: one.text for one in facts(preview)}
    assert (
        "8 of 8 rows (100.0 %) have answers that the chat template writes otherwise"
        in (texts["answers"])
    )


def test_preview_and_check_name_a_template_without_ends(folder: Path, make_config: Config) -> None:
    _, config = saved(folder, STYLES["no end"], make_config)
    job = PreviewJob.model_validate(
        {"config": config.model_dump(mode="json"), "workspace": str(folder)}
    )
    texts = {one.label: one for one in facts(Preview(job).all())}
    assert "writes nothing that ends an answer" in texts["chat template"].text
    assert texts["chat template"].level == "warning"
    found = [one for one in checked(job).findings if one.path == "model.id"]
    assert [one.level for one in found] == ["warning"]
    assert "'</s>' is added and trained" in found[0].message
