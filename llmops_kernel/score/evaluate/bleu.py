"""BLEU through sacrebleu: of a row, and exactly of all rows from their summed counts.

Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002; Post,
"A Call for Clarity in Reporting BLEU Scores", WMT 2018. Tokens of mteval-v13a and exponential
smoothing are sacrebleu's defaults. 0..1, where sacrebleu prints percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmops_kernel.errors import MissingDependencyError

SENTENCE_BLEU = "sentence_bleu"
"""The BLEU of a row and the mean of all rows; `bleu` is that of the corpus, another number."""
ORDER = 4
STATS = 2 + 2 * ORDER
"""Length of the answer, of the reference; n-grams found, and n-grams of the answer, n = 1..4."""


class Bleu:
    """Counts of rows, and the score of counts. Raises MissingDependencyError."""

    def __init__(self) -> None:
        self._metric: Any = _library().BLEU(effective_order=True)

    def row(self, answer: str, reference: str) -> tuple[float, list[int]]:
        """Return a row's score and the counts that it is made of.

        Of a short answer only the n-grams count that it is long enough for (`effective_order`).
        """
        score = self._metric.sentence_score(answer, [reference])
        stats = [score.sys_len, score.ref_len, *score.counts, *score.totals]
        return score.score / 100, stats


def corpus_bleu(stats: Sequence[int]) -> float | None:
    """Return the BLEU of all rows, of the sum of their counts; None without a reference's word."""
    if not stats or not stats[1]:
        return None
    score = _library().BLEU.compute_bleu(
        correct=list(stats[2 : 2 + ORDER]),
        total=list(stats[2 + ORDER :]),
        sys_len=stats[0],
        ref_len=stats[1],
        smooth_method="exp",
    )
    return float(score.score) / 100


def _library() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MissingDependencyError(
            f"The metric bleu needs sacrebleu, which cannot be imported: {error}",
            remedy='install it where the cluster runs: pip install "llmops-kernel[train]", or take'
            " bleu out of evaluation.metrics",
        ) from error
    return metrics
