"""Which way each metric is better."""

from __future__ import annotations

import pytest

from llmops_kernel.metrics.scores import better_of, lower_is_better


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("exact_match", "higher"),
        ("grounded_supported", "higher"),
        ("grounded_unsupported", "lower"),
        ("grounded_refused", None),
        ("perplexity", "lower"),
        ("ece", "lower"),
        ("confidence", None),
        ("judge", "higher"),
        ("judge_bad", None),
        ("my_own", "higher"),
        ("my_error", "lower"),
        ("eval_loss", "lower"),
        ("val/loss_epoch", "lower"),
        ("wer", "lower"),
        ("eval.cer", "lower"),
        ("eval_kl", "lower"),
        ("eval_teacher_agreement", "higher"),
        ("WER-clean", "lower"),
        ("word_error_rate", "lower"),
        ("wer/clean", "lower"),
        ("correct_answer", "higher"),
        ("exact_answer", "higher"),
        ("power", "higher"),
        ("answer", "higher"),
        ("tower/spacer", "higher"),
        ("gloss", "higher"),
        ("terror", "higher"),
    ],
)
def test_directions(name: str, better: str | None) -> None:
    assert better_of(name) == better
    assert lower_is_better(name) <= (better == "lower")
