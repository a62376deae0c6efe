"""The errors of rows: counted part by part, and the remedy where no row could be scored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from llmops_kernel.errors import RunError
from llmops_kernel.score.ledger import PartResult

ENOUGH_ROWS = 200
"""So many rows that the engine refuses for one reason, with none that it answers, end a run."""
_KEPT = 5
_SHOWN = 400
_NUMBER = re.compile(r"\d[\d,.]*")
_TRY = "; Try: "
_REMEDIES = {
    "of another base model": "name an adapter of this model in model.adapter, or the base of this"
    " adapter in model.id",
    "the adapter ": "check model.adapter",
    "no chat template": "set prompt.chat to false, or use a model with a chat template",
    "engine.max_model_len": "raise engine.max_model_len up to what the model was made for, or"
    " shorten the prompts",
    "sampling.max_tokens": "raise sampling.max_tokens",
}
_OTHERWISE = "correct what the error names"


def counted(errors: Iterable[str]) -> dict[str, int]:
    """Return the commonest of these errors with their counts, most first."""
    return _commonest((error, 1) for error in errors)


def merged(results: Iterable[PartResult]) -> dict[str, int]:
    """Return the commonest errors of all parts, most first."""
    return _commonest(pair for result in results for pair in result.reasons.items())


def _commonest(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Count errors; those that differ in their numbers only, as of too long prompts, are one."""
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    for error, count in pairs:
        kind = _NUMBER.sub("#", error)
        examples.setdefault(kind, error[:_SHOWN])
        counts[kind] = counts.get(kind, 0) + count
    most = sorted(counts, key=counts.__getitem__, reverse=True)[:_KEPT]
    return {examples[kind]: counts[kind] for kind in most}


def refusal(errors: Sequence[str]) -> str:
    """Return the one reason for which none of the rows that were asked is scored; else empty.

    `errors`: of each row that the engine was asked; empty for one that is scored.
    """
    kinds = set(errors)
    return kinds.pop() if len(kinds) == 1 else ""


class Refusals:
    """Ends a run whose engine refuses all rows for one reason, before it has tried the others."""

    def __init__(self, *, output: str) -> None:
        """Count refusals. `output`: its place, whose column `error` has the error of each row."""
        self._output = output
        self._reason = ""
        self._rows = self._refused = 0
        self._is_over = False

    def take(self, result: PartResult) -> None:
        """Look at a finished part. Raises RunError."""
        self._rows += result.rows
        if result.errors < result.rows or (self._reason and result.refused != self._reason):
            self._is_over = True
        if self._is_over or not result.refused:
            return
        self._reason = result.refused
        self._refused += result.rows
        if self._refused >= ENOUGH_ROWS:
            raise RunError(
                f"None of the first {self._rows:,} rows could be scored, all for one reason:"
                f" {_shown(self._reason)}",
                remedy=_remedy(self._reason, self._output),
            )


def check_some_scored(results: Sequence[PartResult], *, output: str) -> None:
    """Raise RunError where no row of a whole table could be scored."""
    rows = sum(result.rows for result in results)
    if sum(result.errors for result in results) < rows:
        return
    reasons: Mapping[str, int] = merged(results)
    reason, count = next(iter(reasons.items()), ("", 0))
    share = "all" if count == rows else f"{count:,} of them"
    raise RunError(
        f"None of the {rows:,} rows could be scored"
        + (f", {share} because: {_shown(reason)}" if reason else "."),
        remedy=_remedy(reason, output),
    )


def _shown(reason: str) -> str:
    return reason.partition(_TRY)[0]


def _remedy(reason: str, output: str) -> str:
    remedies = (remedy for text, remedy in _REMEDIES.items() if text in reason)
    todo = reason.partition(_TRY)[2] or next(remedies, _OTHERWISE)
    return (
        f"{todo}, and submit it as a new run; the column `error` in {output} has each row's error"
    )
