"""What bounds a run and what to change: cases whose gain is worked out by hand."""

from __future__ import annotations

import pytest

from llmops_kernel.metrics.waterfall import Measured, waterfall
from llmops_kernel.planner.verdict import Facts, verdict


def losses(*, fixed: float = 0.0, **shares: float):
    """Return a waterfall of 20 steps of 1 s with these parts; the rest is in passes."""
    extra = {name: shares.pop(name) for name in ("mfu", "hfu", "recomputed") if name in shares}
    parts = {f"{name}_s": share for name, share in shares.items()}
    parts["passes_s"] = 1.0 - sum(parts.values())
    return waterfall(
        Measured(
            steps=20,
            steps_s=20.0,
            parts=parts,
            fixed_share=fixed / parts["passes_s"],
            tokens_per_second=1000.0,
            **{"mfu": 0.05, "hfu": 0.05, "recomputed": 0.0, **extra},
        )
    )


def facts(*, micro=2, rows=4, streamed=False, params=100, trained=100, **parallelism):
    config = {
        "parallelism": {"strategy": "ddp", "num_workers": 2, **parallelism},
        "training": {"micro_batch_size": micro, "global_batch_size": rows},
    }
    return Facts(config, num_params=params, num_trainable=trained, is_streamed=streamed)


@pytest.mark.parametrize(
    ("waterfall", "of", "bound", "change", "gain"),
    [
        (losses(data_wait=0.5), facts(streamed=True), "data", {"data.streaming": False}, 1.0),
        (
            losses(data_wait=0.5),
            facts(),
            "data",
            {"training_arguments.dataloader_num_workers": 2},
            1 / 0.75 - 1,
        ),
        (
            losses(fixed=0.8),
            facts(micro=1, rows=16),
            "Python",
            {"training.micro_batch_size": 8},
            1 / (1 - 0.8 * 7 / 8) - 1,
        ),
        # ZeRO-3 sends three times the model for each of two passes, DDP twice in a step.
        (
            losses(communication=0.6),
            facts(rows=8, strategy="zero3"),
            "network",
            {"parallelism.strategy": "ddp"},
            1 / (1 - 0.6 * 4 / 6) - 1,
        ),
        # Nothing that DDP could send less of: fewer meetings.
        (
            losses(communication=0.6),
            facts(rows=8),
            "network",
            {"training.global_batch_size": 32},
            1 / (1 - 0.6 * 3 / 4) - 1,
        ),
        (
            losses(offload=0.5),
            facts(strategy="zero2", offload_optimizer="cpu"),
            "host offload",
            {"parallelism.offload_optimizer": False},
            1.0,
        ),
        (
            losses(mfu=0.3, hfu=0.4, recomputed=0.1),
            facts(gradient_checkpointing=True),
            "compute",
            {"parallelism.gradient_checkpointing": False},
            1 / 0.75 - 1,
        ),
    ],
)
def test_bound_change_and_gain(waterfall, of, bound, change, gain):
    answer = verdict(waterfall, of)
    assert (answer.bound, answer.change) == (bound, change)
    assert answer.gain == pytest.approx(gain)
    assert answer.tokens_per_second == pytest.approx(1000 * (1 + gain))
    assert all(f"{key}=" in answer.sentence for key in change)


def test_a_change_that_does_not_fit_is_not_proposed():
    with_checkpointing = facts(gradient_checkpointing=True)
    answer = verdict(
        losses(mfu=0.3, hfu=0.4, recomputed=0.1), with_checkpointing, lambda change: False
    )
    assert answer.bound == "memory capacity"
    assert answer.change == {}
    assert answer.gain is None
    assert "parallelism.gradient_checkpointing=false would not fit" in answer.sentence


def test_nothing_is_proposed_for_less_than_five_percent():
    answer = verdict(losses(data_wait=0.03, optimizer=0.02), facts())
    assert (answer.bound, answer.change) == ("compute", {})


def test_a_change_of_the_losses_is_said_and_comes_second():
    """Half the gain without it is preferred; without any other it is named."""
    both = verdict(losses(communication=0.3, optimizer=0.3), facts(rows=8, strategy="zero3"))
    assert both.change == {"parallelism.strategy": "ddp"}
    alone = verdict(losses(optimizer=0.6), facts())
    assert alone.bound == "memory bandwidth"
    assert "training.global_batch_size" in alone.change
    assert "losses will be others" in alone.sentence
