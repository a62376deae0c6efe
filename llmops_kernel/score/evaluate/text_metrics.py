"""Metrics of an answer beside the expected one: exact match, F1 of fields, ROUGE, BLEU."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from llmops_kernel.errors import MissingDependencyError
from llmops_kernel.metrics.scores import lcs_length, words

# --- Equality of answers: texts but for white space, JSON by value ---


def plain(text: str) -> str:
    """Return a text with one form of each character and of white space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def parsed(text: str) -> Any:
    """Return what a JSON text says, None for all else, such as text around an object."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def canonical(value: Any) -> str:
    """Return one text for equal JSON values: keys in order, 1.0 as 1."""
    return json.dumps(_normal(value), sort_keys=True, ensure_ascii=False)


def _normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _normal(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(inner) for inner in value]
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


# --- Exact match, and F1 by field of a JSON object ---


def exact_match(answer: str, reference: str, *, is_json: bool = False) -> float:
    """Return 1.0 for an answer equal to the reference but for white space, else 0.0.

    With `is_json` values are compared: the order of keys and the writing do not matter.
    """
    if plain(answer) == plain(reference):
        return 1.0
    if not is_json:
        return 0.0
    ours, expected = parsed(answer), parsed(reference)
    if ours is None or expected is None:
        return 0.0
    return float(canonical(ours) == canonical(expected))


def field_f1(
    answer: str, reference: str, keys: Collection[str] | None = None
) -> dict[str, float | None]:
    """Return `field_f1`, the mean over all fields of both objects, and `field_f1_<key>`.

    F1 of a field is of sets: a list is the set of its items, another value a set of one, null
    and a missing field are the empty set; two empty sets agree (1.0). An answer that is not a
    JSON object has no field. `keys`: whose F1 is returned one by one, default the reference's.
    All is None when the reference is not a JSON object.
    """
    expected = parsed(reference)
    names = keys if keys is not None else list(expected) if isinstance(expected, dict) else ()
    if not isinstance(expected, dict):
        return {"field_f1": None, **{f"field_f1_{key}": None for key in names}}
    actual = parsed(answer)
    if not isinstance(actual, dict):
        # Nothing was answered, so fields that are rightly empty do not count for it either.
        return {"field_f1": 0.0, **{f"field_f1_{key}": 0.0 for key in names}}
    by_key = {key: set_f1(_items(actual.get(key)), _items(expected.get(key))) for key in names}
    every = dict.fromkeys((*expected, *actual))
    scores = [
        by_key[k] if k in by_key else set_f1(_items(actual.get(k)), _items(expected.get(k)))
        for k in every
    ]
    mean = sum(scores) / len(scores) if scores else 1.0
    return {"field_f1": mean, **{f"field_f1_{key}": value for key, value in by_key.items()}}


def set_f1(actual: set[str], expected: set[str]) -> float:
    """Return 2 |A and B| / (|A| + |B|), the harmonic mean of precision and recall.

    van Rijsbergen, Information Retrieval, 2nd edition 1979, chapter 7, with equal weights.
    """
    if not actual and not expected:
        return 1.0
    return 2 * len(actual & expected) / (len(actual) + len(expected))


def _items(value: Any) -> set[str]:
    if value is None:
        return set()
    values = value if isinstance(value, list) else [value]
    return {canonical(item) for item in values}


# --- ROUGE: n-grams and the longest common subsequence ---
# Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", ACL 2004 workshop; F1 with one
# reference and without stemming, as `rouge-score` 0.1.2 computes it (tests compare with values of
# it). Not through that library: its last release is of 2022, it drops every letter outside a-z,
# and its table for rougeL needs milliseconds for answers of some hundred words.


def rouge(answer: str, reference: str) -> dict[str, float]:
    """Return the F1 of `rouge1`, `rouge2` and `rougeL`, each 0..1."""
    ours, expected = words(answer), words(reference)
    return {
        "rouge1": _ngram_f1(ours, expected, 1),
        "rouge2": _ngram_f1(ours, expected, 2),
        "rougeL": _f1(lcs_length(ours, expected), len(ours), len(expected)),
    }


def _ngram_f1(ours: list[str], expected: list[str], n: int) -> float:
    a, b = _ngrams(ours, n), _ngrams(expected, n)
    return _f1((a & b).total(), a.total(), b.total())


def _ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def _f1(common: int, ours: int, expected: int) -> float:
    return 2 * common / (ours + expected) if common else 0.0


# --- BLEU through sacrebleu: of a row, and of all rows from their summed counts ---
# Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002;
# Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018. Tokens of mteval-v13a and
# exponential smoothing are sacrebleu's defaults. 0..1, where sacrebleu prints percent.


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
