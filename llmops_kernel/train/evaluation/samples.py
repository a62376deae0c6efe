"""Which answers an evaluation keeps, and how much of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmops_kernel.train.data.examples import Prompt

_MOST_CHARACTERS = 4_000
_ALL_CHARACTERS = 96_000
"""Of all texts of one evaluation: they are one line of the journal, which is read whole."""


def spread(number: int, wanted: int) -> list[int]:
    """Return `wanted` of the indices 0..number-1 (all, if there are fewer), evenly spread.

    The same for each evaluation, so that a row can be followed from the first to the last.
    """
    if wanted >= number:
        return list(range(number))
    return [index * number // wanted for index in range(wanted)]


def kept_samples(
    prompts: Sequence[Prompt], answers: Sequence[tuple[int, str]], kept: Mapping[int, str]
) -> tuple[dict[str, str], ...]:
    """Return prompt, prediction and reference of the rows in `kept`, which names each index."""
    most = min(_MOST_CHARACTERS, _ALL_CHARACTERS // (3 * max(1, len(kept))))
    return tuple(
        {"row": kept[index], **_texts(prompts[index], text, most)}
        for index, text in answers
        if index in kept
    )


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
