"""Which answers an evaluation keeps, and how much of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmops_kernel.errors import HookError
from llmops_kernel.train.data.examples import Prompt
from llmops_kernel.train.hooks import Hooks, call, hook_numbers

_MOST_CHARACTERS = 4_000
_ALL_CHARACTERS = 96_000
"""Of all texts of one evaluation: they are one line of the journal, which is read whole."""

_TEXTS = ("row", "prompt", "prediction", "reference")
_WHY_TAKEN = "is already a column of the samples"
_MOST_METRICS, _MOST_ERROR = 20, 200


def spread(number: int, wanted: int) -> list[int]:
    """Return `wanted` of the indices 0..number-1 (all, if there are fewer), evenly spread.

    The same for each evaluation, so that a row can be followed from the first to the last.
    """
    if wanted >= number:
        return list(range(number))
    return [index * number // wanted for index in range(wanted)]


def kept_samples(
    prompts: Sequence[Prompt],
    answers: Sequence[tuple[int, str]],
    kept: Mapping[int, str],
    hooks: Hooks,
) -> tuple[dict[str, str], ...]:
    """Return prompt, prediction, reference and metrics of the rows in `kept`.

    `kept` names each index.
    """
    most = min(_MOST_CHARACTERS, _ALL_CHARACTERS // (3 * max(1, len(kept))))
    return tuple(
        {
            "row": kept[index],
            **_texts(prompts[index], text, most),
            **_metrics(prompts[index], text, kept[index], hooks),
        }
        for index, text in answers
        if index in kept
    )


def _metrics(prompt: Prompt, answer: str, name: str, hooks: Hooks) -> dict[str, str]:
    """Return what `score_row` says of an answer; without it, whether it is the reference.

    A hook that fails is reported here and does not end the training: it may have been written for
    the rows of another table.
    """
    if not prompt.reference:
        return {}
    if hooks.score_row is None:
        return {"exact_match": f"{int(answer.strip() == prompt.reference.strip())}"}
    try:
        found = call(hooks.score_row, answer, prompt.reference, prompt.row, where=f"row {name}")
        numbers = hook_numbers(found, hook="score_row", taken=_TEXTS, why_taken=_WHY_TAKEN)
    except HookError as error:
        return {"score_row": shortened(error.message, _MOST_ERROR)}
    shown = list(numbers.items())[:_MOST_METRICS]
    return {key: "–" if value is None else f"{value:.4g}" for key, value in shown}


def _texts(prompt: Prompt, answer: str, most: int) -> dict[str, str]:
    texts = {"prompt": prompt.prompt, "prediction": answer, "reference": prompt.reference}
    if not prompt.reference:
        del texts["reference"]
    return {name: shortened(text, most) for name, text in texts.items()}


def shortened(text: str, most: int) -> str:
    """Return the first `most` characters of a longer text, and how many are left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters)"
