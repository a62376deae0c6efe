"""A preview's figures, against rows made by hand and against the code of the workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ConfigError, DataError, HookError
from llmops_kernel.store.preview_job import DataPreview, PreviewJob
from llmops_kernel.train.data.examples import tokenise
from llmops_kernel.train.data.preview.work import Preview
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.hooks import Hooks

Make = Callable[..., Any]


def chat(question: str, answer: str) -> dict[str, str]:
    return {"prompt": question, "completion": answer}


def write(folder: Path, name: str, rows: list[Any]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def job(config: Any, folder: Path, **wanted: Any) -> PreviewJob:
    values = config.model_dump(mode="json")
    return PreviewJob.model_validate({"config": values, "workspace": str(folder), **wanted})


def looked_at(config: Any, folder: Path, **wanted: Any) -> DataPreview:
    return Preview(job(config, folder, **wanted)).all()


def test_the_tokens_are_those_that_the_workers_train_on(
    tiny_llama: Path, tokenizer: Any, workspace: Path, make_config: Make
) -> None:
    config = make_config(data={"max_length": 30})
    found = looked_at(config, workspace, num_shown=64)
    rows = Source("train.jsonl", (workspace,)).load()
    done = tokenise(rows, tokenizer=tokenizer, data=config.data, hooks=Hooks())
    assert 0 < done.num_cut < len(rows)
    assert len(found.rows) == len(done.examples) == 64
    for shown, example in zip(found.rows, done.examples, strict=True):
        kept = [piece for piece in shown.pieces if piece.kind != "cut"]
        assert [token for piece in kept for token in piece.ids] == example.input_ids
        counted = [t for piece in kept if piece.kind == "loss" for t in piece.ids]
        assert counted == [label for label in example.labels[1:] if label != -100]
        assert shown.num_loss == len(counted)
    assert found.train.num_tokens == sum(len(one.input_ids) for one in done.examples)
    assert found.train.num_loss == sum(row.num_loss for row in found.rows)
    assert (found.train.num_cut, found.train.num_masked) == (done.num_cut, done.num_empty)


def test_pieces_are_the_text_after_the_template(
    tiny_llama: Path, tokenizer: Any, workspace: Path, make_config: Make
) -> None:
    write(workspace, "train.jsonl", [chat("héllo 🦙?", "ja → 東京")])
    (row,) = looked_at(make_config(), workspace).rows
    assert "".join(piece.text for piece in row.pieces) == (
        "<|user|>héllo 🦙?<|end|><|assistant|>ja → 東京<|end|>"
    )
    assert [piece.text for piece in row.pieces if piece.special] == [
        *("<|user|>", "<|end|>", "<|assistant|>", "<|end|>")
    ]
    loss = "".join(piece.text for piece in row.pieces if piece.kind == "loss")
    assert loss == "ja → 東京<|end|>"
    assert "🦙" in [piece.text for piece in row.pieces]  # four tokens of a byte each


def test_what_is_beyond_max_length_is_shown_as_cut(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    write(workspace, "train.jsonl", [{"text": "abcdefghijkl"}])
    cut = make_config(data={"max_length": 8, "long_texts": "cut"})
    (row,) = looked_at(cut, workspace).rows
    texts = {kind: [p.text for p in row.pieces if p.kind == kind] for kind in ("loss", "cut")}
    assert "".join(texts["loss"]) == "bcdefgh"
    assert "".join(texts["cut"]) == "ijkl<|end|>"
    assert (row.num_tokens, row.num_loss, row.num_hidden) == (13, 7, 0)


def test_long_rows_are_shown_in_part(tiny_llama: Path, workspace: Path, make_config: Make) -> None:
    write(workspace, "train.jsonl", [{"text": "abcdefghijkl"}])
    (row,) = looked_at(make_config(), workspace, max_tokens=5).rows
    assert (len(row.pieces), row.num_hidden) == (5, 8)
    assert len(Preview(job(make_config(), workspace, max_tokens=None)).row(1).pieces) == 13


def test_rows_that_are_of_no_use_are_counted_and_named(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    rows = [chat("q" * n, "a") for n in (5, 60, 6, 70)] + [chat("QQQQQ ", "A")]
    write(workspace, "train.jsonl", rows)
    held_out = [chat("never seen", "b"), chat(" qqqqqq", "a")]
    write(workspace, "eval.jsonl", held_out)
    data = {"max_length": 30, "eval": "eval.jsonl"}
    found = looked_at(make_config(data=data), workspace)
    train = found.train
    assert (train.total_rows, train.num_rows, train.is_sample) == (5, 5, False)
    assert (train.num_cut, train.num_masked, train.masked) == (2, 2, [2, 4])
    assert (train.num_duplicates, train.duplicates) == (1, [[1, 5]])
    assert found.leaks is not None
    assert (found.leaks.rows, found.leaks.of, found.leaks.pairs) == (1, 2, [(2, 3)])
    assert found.eval is not None
    assert found.eval.num_rows == 2


def test_formats_are_counted_by_what_auto_took(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    rows = [chat("q", "a"), {"text": "abc"}, {"instruction": "i", "output": "o"}, chat("r", "b")]
    write(workspace, "train.jsonl", rows)
    found = looked_at(make_config(), workspace)
    assert found.train.formats == {"prompt_completion": 2, "text": 1, "alpaca": 1}
    shown = [row.format for row in found.rows]
    assert shown == ["prompt_completion", "text", "alpaca", "prompt_completion"]


def test_a_hook_makes_the_rows(tiny_llama: Path, workspace: Path, make_config: Make) -> None:
    (workspace / "hooks.py").write_text("def format_example(row):\n    return row['own'].upper()\n")
    write(workspace, "train.jsonl", [{"own": "abc"}, {"own": "abd"}])
    config = make_config(hooks={"file": "hooks.py"})
    found = looked_at(config, workspace)
    assert (found.has_hook, found.train.formats) == (True, {"text": 2})
    assert "".join(piece.text for piece in found.rows[0].pieces) == "ABC<|end|>"
    write(workspace, "train.jsonl", [{"own": "abc"}, {"other": "abd"}])
    with pytest.raises(HookError, match=r"train\.jsonl: .*row 2"):
        looked_at(config, workspace)


def test_fewer_rows_are_tokenised_than_compared(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    write(workspace, "train.jsonl", [{"text": f"row {n % 50}"} for n in range(100)])
    found = looked_at(make_config(), workspace, max_rows=10, num_shown=3)
    train = found.train
    assert (train.num_rows, train.num_compared, train.total_rows) == (10, 100, 100)
    assert (train.is_sample, train.num_duplicates) == (True, 50)
    assert sum(one.rows for one in train.lengths.bins) == 10
    assert found.rows[0].number == 1
    assert found.epoch.is_estimate
    assert found.epoch.sequences == 100


def test_evaluation_rows_are_shown_when_asked_for(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    write(workspace, "eval.jsonl", [chat("held", "out"), chat("held 2", "out")])
    config = make_config(data={"eval": "eval.jsonl", "max_eval_rows": 1})
    found = looked_at(config, workspace, side="eval")
    assert [row.number for row in found.rows] == [1]
    assert "held" in "".join(piece.text for piece in found.rows[0].pieces)
    assert found.eval is not None
    assert (found.eval.total_rows, found.train.total_rows) == (1, 64)
    with pytest.raises(ConfigError, match="names no evaluation rows"):
        looked_at(make_config(), workspace, side="eval")


def test_broken_rows_that_a_run_skips_are_counted(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    lines = ['{"text": "fine"}', '{"text": ', '{"messages": 3}', '{"text": "too"}']
    (workspace / "train.jsonl").write_text("\n".join(lines) + "\n")
    train = looked_at(make_config(data={"on_error": "skip"}), workspace).train
    assert (train.num_rows, train.num_broken) == (2, 2)
    assert "row 2: not valid JSON" in train.broken[0]
    (workspace / "train.jsonl").write_text('{"messages": 3}\n')
    with pytest.raises(DataError, match=r"All rows of train\.jsonl that were read are broken"):
        looked_at(make_config(data={"on_error": "skip"}), workspace)


def test_several_files_are_looked_at_as_the_run_streams_them(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    for name in ("a", "b"):
        write(workspace, f"part-{name}.jsonl", [{"text": f"{name} {n}"} for n in range(30)])
    config = make_config(data={"train": "part-*.jsonl"})
    found = looked_at(config, workspace, num_shown=60)
    assert (found.train.total_rows, found.train.num_rows) == (60, 60)
    texts = {"".join(piece.text for piece in row.pieces) for row in found.rows}
    assert {"a 0<|end|>", "b 29<|end|>"} <= texts
    (workspace / "part-b.jsonl").write_text('{"text": "fine"}\n{"text": 3}\n')
    with pytest.raises(DataError, match=r"^Row part-b\.jsonl, row 2\b.*`text` is a number"):
        looked_at(config, workspace)
    with pytest.raises(DataError, match="have no numbers"):
        Preview(job(config, workspace)).row(1)


OBJECTIVES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "dpo": (
        {"prompt": "why?", "chosen": "because", "rejected": "no idea"},
        ["[chosen] ", "\n[rejected] "],
        ["because", "no idea"],
    ),
    "kto": (
        {"prompt": "why?", "completion": "because", "label": True},
        ["[answer (1.0)] "],
        ["because"],
    ),
    "distill": (
        {
            "prompt": "why?",
            "reference": "no",
            "target_tokens": [77, 78, 257],
            "top_logprobs": {
                "token_ids": [[77, 1], [78, 1], [257, 1]],
                "logprobs": [[-0.5, -1.5]] * 3,
            },
        },
        ["[answer] "],
        ["no<|end|>"],
    ),
    "classify": ({"text": "a dish", "label": "hot"}, ["[label (hot)] "], []),
    "embed": (
        {"query": "a dish", "positive": "the dish", "negatives": ["one", "two"]},
        ["[query] ", "\n[positive] ", "\n[negative] ", "\n[negative] "],
        [],
    ),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_row_shows_its_parts_and_what_carries_loss(
    objective: str, tmp_path: Path, make_config: Make
) -> None:
    row, names, answers = OBJECTIVES[objective]
    other = json.loads(json.dumps(row).replace("dish", "soup").replace("hot", "cold"))
    write(tmp_path, "train.jsonl", [row, {**other, "prompt": "how?"}])
    preview = looked_at(make_config(objective=objective), tmp_path)
    first = preview.rows[0]
    assert [piece.text for piece in first.pieces if piece.special and not piece.ids] == names
    assert sum(len(piece.ids) for piece in first.pieces) == first.num_tokens
    learnt = "".join(piece.text for piece in first.pieces if piece.kind == "loss")
    assert all(answer in learnt for answer in answers)
    assert sum(len(piece.ids) for piece in first.pieces if piece.kind == "loss") == first.num_loss
    assert preview.train.num_loss == sum(row.num_loss for row in preview.rows)
    if objective in ("classify", "embed"):
        assert first.num_loss == first.num_tokens
    assert (preview.train.num_duplicates, preview.train.num_masked) == (0, 0)
    assert preview.epoch.sequences == 2
    assert (preview.epoch.padding_cpu, preview.format) == (None, "auto")
