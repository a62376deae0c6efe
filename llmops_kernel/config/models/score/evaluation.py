"""Which metrics are computed of the answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llmops_kernel.config.models.section import Section

MetricName = Literal[
    "exact_match", "field_f1", "rouge", "bleu", "perplexity", "calibration", "grounded"
]


class Grounded(Section):
    """Whether an answer is supported by the context, or refuses."""

    context: str = "context"
    """Column with the text that must support the answer."""
    answerable: str = ""
    """Column that says whether the context has the answer; default: unknown."""
    refusals: tuple[str, ...] = (
        "i don't know",
        "i do not know",
        "cannot answer",
        "can't answer",
        "not enough information",
        "not in the context",
        "unanswerable",
    )
    """Phrases of a refusal, in any case."""
    support: float = Field(default=0.8, gt=0, le=1)
    """Share of the answer's words that must be in the context, 0..1."""


class Judge(Section):
    """A second model that grades the answers."""

    model: str = ""
    """A name of the catalogue, a folder or a hub id; without one there is no judge."""
    rubric: str = ""
    """What is asked about an answer, with `{prompt}`, `{output}`, `{reference}` and columns."""
    choices: tuple[str, ...] = ("good", "bad")
    """The grades, from best to worst."""


class ScoreEvaluation(Section):
    """Which metrics are computed of the answers, and how many are shown."""

    metrics: tuple[MetricName, ...] = ()
    """Metrics against the reference; the hook `score_row` adds its own."""
    grounded: Grounded = Grounded()
    """Settings of the metric `grounded`."""
    judge: Judge = Judge()
    """A second model that grades the answers."""
    samples: int = Field(default=5, ge=0, le=100)
    """Rows that are shown with their answers while the run goes on."""
