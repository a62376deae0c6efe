"""Previews made by hand."""

from __future__ import annotations

from typing import Any

from llmops_kernel.store.preview_job import (
    Bin,
    DataPreview,
    Epoch,
    Leaks,
    Lengths,
    Piece,
    ShownRow,
    SourceReport,
)

BINS = [
    Bin(above=0, up_to=8, rows=3),
    Bin(above=8, up_to=16, rows=80),
    Bin(above=16, up_to=None, rows=1),
]


def report(**changes: Any) -> SourceReport:
    base: dict[str, Any] = {
        "source": "data/train.jsonl",
        "total_rows": 84,
        "is_estimate": False,
        "num_compared": 84,
        "num_rows": 84,
        "where": "",
        "formats": {"chat": 84},
        "lengths": Lengths(shortest=3, median=12, mean=11.5, longest=20, bins=BINS),
        "num_cut": 0,
        "num_masked": 0,
        "masked": [],
        "num_tokens": 900,
        "num_loss": 225,
        "num_duplicates": 0,
        "duplicates": [],
    }
    return SourceReport.model_validate({**base, **changes})


def epoch(**changes: Any) -> Epoch:
    base: dict[str, Any] = {
        "num_workers": 2,
        "micro_batch_size": 4,
        "accumulation_steps": 1,
        "global_batch_size": 8,
        "packing": False,
        "padding_free": False,
        "groups_by_length": False,
        "sequences": 84,
        "steps": 11,
        "tokens": 900,
        "is_estimate": False,
        "padding_cpu": 0.25,
        "padding_gpu": 0.5,
        "run_steps": 22,
    }
    return Epoch.model_validate({**base, **changes})


def piece(text: str, kind: str = "context", special: bool = False) -> Piece:
    return Piece.model_validate({"text": text, "ids": [1], "kind": kind, "special": special})


def row(*pieces: Piece, **changes: Any) -> ShownRow:
    base: dict[str, Any] = {
        "number": 17,
        "format": "chat",
        "num_tokens": len(pieces),
        "num_loss": 1,
        "num_hidden": 0,
        "pieces": list(pieces),
    }
    return ShownRow.model_validate({**base, **changes})


def preview(**changes: Any) -> DataPreview:
    base: dict[str, Any] = {
        "model": "tiny-llama",
        "max_length": 16,
        "loss_on": "answer",
        "format": "auto",
        "has_hook": False,
        "train": report(),
        "eval": report(source="data/eval.jsonl"),
        "leaks": Leaks(rows=0, of=84, pairs=[]),
        "epoch": epoch(),
        "side": "train",
        "rows": [row(piece("a question "), piece("an answer", "loss"))],
        "took_s": 0.5,
    }
    return DataPreview.model_validate({**base, **changes})
