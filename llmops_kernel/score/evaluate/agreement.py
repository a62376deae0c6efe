"""Whether an answer is the expected one: as a whole, and field by field of a JSON object."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from llmops_kernel.score.evaluate.equality import canonical, parsed, plain


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
    wanted = keys if keys is not None else list(expected) if isinstance(expected, dict) else ()
    if not isinstance(expected, dict):
        return {"field_f1": None, **{f"field_f1_{key}": None for key in wanted}}
    found = parsed(answer)
    if not isinstance(found, dict):
        # Nothing was answered, so fields that are rightly empty do not count for it either.
        return {"field_f1": 0.0, **{f"field_f1_{key}": 0.0 for key in wanted}}
    of = {key: set_f1(_items(found.get(key)), _items(expected.get(key))) for key in wanted}
    every = dict.fromkeys((*expected, *found))
    scores = [
        of[k] if k in of else set_f1(_items(found.get(k)), _items(expected.get(k))) for k in every
    ]
    mean = sum(scores) / len(scores) if scores else 1.0
    return {"field_f1": mean, **{f"field_f1_{key}": value for key, value in of.items()}}


def set_f1(found: set[str], expected: set[str]) -> float:
    """Return 2 |A and B| / (|A| + |B|), the harmonic mean of precision and recall.

    van Rijsbergen, Information Retrieval, 2nd edition 1979, chapter 7, with equal weights.
    """
    if not found and not expected:
        return 1.0
    return 2 * len(found & expected) / (len(found) + len(expected))


def _items(value: Any) -> set[str]:
    if value is None:
        return set()
    values = value if isinstance(value, list) else [value]
    return {canonical(item) for item in values}
