"""Imitation against TRL: the same tokens, the same losses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.train.objectives.test_preferences import assert_like, logged
from tests.train.objectives.truths import Truth
from tests.train.test_loop import losses, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]


@pytest.mark.parametrize("micro_batch_size", [4, 2])
def test_answers_of_chats_train_as_trl(
    training: Callable[..., Any], folder: Path, tmp_path: Path, micro_batch_size: int
) -> None:
    import datasets
    from trl import SFTConfig, SFTTrainer

    config = training({"type": "sft"}, "chats", training={"micro_batch_size": micro_batch_size})
    truth = Truth(config, folder)
    rows = [{"input_ids": row.input_ids, "labels": row.labels} for row in truth.rows]
    trainer = SFTTrainer(
        model=truth.model(),
        args=SFTConfig(
            **truth.arguments(tmp_path / "trl"), dataset_kwargs={"skip_prepare_dataset": True}
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=truth.tokenizer,
    )
    trainer.train()
    assert_like(losses(run(config, tmp_path / "run", folder)), logged(trainer))
