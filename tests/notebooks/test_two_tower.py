"""The two towers of `scripts/two_tower_lightning.py`: loss, workers and FLOPs by other means."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llmops_kernel.models.catalogue import prepare
from tests.notebooks.test_data import NOTEBOOKS, load_module
from tests.train.strategy_pairs import free_port

pytestmark = [pytest.mark.slow, pytest.mark.beside]
SIZE = 16
TWO_WORKERS = """
    import json, sys
    from pathlib import Path
    import torch
    from tests.notebooks.test_two_tower import model_and_rows, script, trained

    losses, weights = trained(*model_and_rows(script(), "lora"), workers=2)
    if int(sys.argv[1]) == 0:
        Path(sys.argv[2]).write_text(json.dumps([losses, weights]))
"""


def script() -> ModuleType:
    return load_module(NOTEBOOKS / "scripts" / "two_tower_lightning.py")


def model_and_rows(towers: ModuleType, encoder: str) -> tuple[Any, Any, list[Any]]:
    """Return the model, what makes its batches, and rows in which a dish is there twice."""
    import lightning
    from transformers import AutoModel, AutoTokenizer

    lightning.seed_everything(0)
    source = str(prepare("tiny-llama"))
    rows = towers.read(NOTEBOOKS / "data" / "menu-train.jsonl", set())
    rows = sorted(rows[: 8 * SIZE], key=lambda row: row["dish"])[: 2 * SIZE]
    assert len({row["dish"] for row in rows}) < 2 * SIZE
    collate = towers.Collate(AutoTokenizer.from_pretrained(source), rows)
    options = argparse.Namespace(encoder=encoder, lr=1e-2)
    bare = AutoModel.from_pretrained(source, attn_implementation="eager")
    return towers.TwoTower(bare, collate.ids, options), collate, rows


def trained(
    model: Any, collate: Any, rows: list[Any], *, workers: int
) -> tuple[list[float], dict[str, Any]]:
    """Return the loss of each step, the mean of all workers, and sums of the trained weights."""
    import lightning
    from torch.utils.data import DataLoader

    losses: list[float] = []

    class Losses(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            losses.append(float(trainer.strategy.reduce(outputs["loss"], reduce_op="mean")))

    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=workers,
        strategy="ddp" if workers > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Losses()],
    )
    # Of two workers the first one has the rows 0, 2, 4, ..., the other one the rest.
    size = len(rows) // workers
    trainer.fit(model, DataLoader(rows, size, shuffle=False, collate_fn=collate))
    named = model.named_parameters()
    return losses, {name: weight.norm().item() for name, weight in named if weight.requires_grad}


def test_two_workers_have_the_negatives_and_the_gradients_of_one(tmp_path: Path) -> None:
    file, result = tmp_path / "two.py", tmp_path / "result.json"
    file.write_text(textwrap.dedent(TWO_WORKERS))
    root = str(NOTEBOOKS.parent)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}", "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(file), rank, str(result)],
            env=os.environ | shared | {"LOCAL_RANK": rank, "NODE_RANK": "0", "PYTHONPATH": root},
        )
        for rank in ("0", "1")
    ]
    try:
        losses, weights = trained(*model_and_rows(script(), "lora"), workers=1)
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    theirs, their_weights = json.loads(result.read_text())
    assert losses == pytest.approx(theirs, abs=1e-5)
    assert losses[-1] < losses[0] - 0.1
    assert weights == pytest.approx(their_weights, rel=1e-4)


def test_the_loss_is_that_of_sentence_transformers_but_for_equal_dishes() -> None:
    import torch
    from sentence_transformers.util import cos_sim

    model, collate, rows = model_and_rows(script(), "frozen")
    attach(model)
    once = list({row["dish"]: row for row in rows}.values())
    for some, is_equal in ((once, True), (rows, False)):
        batch = collate(some)
        # MultipleNegativesRankingLoss: the cross entropy of scaled cosines, own on the diagonal.
        scores = cos_sim(*model(batch)) * 20
        theirs = torch.nn.functional.cross_entropy(scores, torch.arange(len(some))).detach()
        mine = model.training_step(batch, 0).detach()
        assert (float(mine) == pytest.approx(float(theirs), abs=1e-5)) is is_equal


def attach(model: Any) -> None:
    import lightning

    model.trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)


@pytest.mark.parametrize("encoder", ["frozen", "lora"])
def test_flops_are_what_pytorch_counts(encoder: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model, collate, rows = model_and_rows(script(), encoder)
    attach(model)
    batch = collate([{**rows[0], "dish": dish} for dish in range(8)])  # As long: no padding.
    with FlopCounterMode(display=False) as counter:
        model.training_step(batch, 0).backward()
    shape = model.shape
    passes = 3 if encoder == "lora" else 1
    squares = float((batch["lengths"].double() ** 2).sum())
    to_later = 2 * passes * squares * shape.hidden_size * shape.num_hidden_layers
    counted = counter.get_total_flops() - to_later
    # With adapters: below the first one nothing has gradients, which the usual count leaves in.
    found = model.flops(batch)
    print(f"{encoder}: {found / 1e6:.2f} of {counted / 1e6:.2f} MFLOPs")
    assert found == pytest.approx(counted, rel=0.005 if encoder == "frozen" else 0.12)
