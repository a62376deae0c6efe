"""The rows of two outputs, joined by their key: arrays of what a comparison needs of each row.

Some hundred bytes a row stay in memory: key, fingerprints of output and label, metrics. Texts are
not kept; they are read again for the rows that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from llmops_kernel.errors import ComparisonError
from llmops_kernel.services.scoring.output import METRIC_PREFIX, ScoredOutput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
ROW_NUMBER = "row_number"
# Written by every scoring; all other columns are of the input.
OWN_COLUMNS = frozenset(
    {
        ROW_NUMBER, "output", "label", "label_scores", "parsed", "logprob", "embedding",
        "prompt_tokens", "output_tokens", "finish_reason", "reference", "prompt", "error",
        "input_raw", "reference_embedding", "value",
    }
)  # fmt: skip
_NOTHING, _EMPTY = 0, 1
_SAMPLE = 200


@dataclass(frozen=True)
class Side:
    """The rows of an output, in the order of its parts."""

    keys: pd.Index[Any]
    output: Ints
    """Fingerprint of the text; 0 without one."""
    label: Ints
    is_error: Bools
    logprob: Floats
    tokens: Floats
    metrics: dict[str, Floats]
    """NaN where a row does not have the metric."""


@dataclass(frozen=True)
class Joined:
    """Rows of both sides: `left[i]` and `right[i]` are the positions of one key."""

    left: Ints
    right: Ints
    only_left: Ints
    only_right: Ints


def read_side(output: ScoredOutput, key: str, metrics: tuple[str, ...]) -> Side:
    """Read what is compared. Raises ComparisonError when the key is missing or not unique."""
    if not output.num_rows:
        raise ComparisonError(
            f"The output of {output.name} has no rows.",
            remedy="check the input of the scoring",
        )
    if key not in output.columns:
        raise ComparisonError(
            f"The output of {output.name} has no column {key!r}, which identifies its rows.",
            remedy="keep it in input.columns, and score again",
        )
    columns = [key, "output", "label", "error", "logprob", "output_tokens"]
    columns += [METRIC_PREFIX + name for name in metrics]
    parts = [_arrays(table, key, metrics) for table in output.read(list(dict.fromkeys(columns)))]
    side = _concatenated(parts, metrics)
    _check_unique(side.keys, key, output.name)
    return side


def join(before: Side, after: Side) -> Joined:
    """Match rows of equal keys, in the order of `before`; a row without a key matches none."""
    keyed = np.flatnonzero(after.keys.notna())
    matches = np.asarray(after.keys[keyed].get_indexer(before.keys), dtype=np.int64)
    is_common = (matches >= 0) & before.keys.notna()
    right_positions = np.where(is_common, keyed[matches] if len(keyed) else -1, -1)
    right_only = np.ones(len(after.keys), dtype=bool)
    right_only[right_positions[is_common]] = False
    return Joined(
        left=np.flatnonzero(is_common),
        right=right_positions[is_common],
        only_left=np.flatnonzero(~is_common),
        only_right=np.flatnonzero(right_only),
    )


def check_same_input(before: ScoredOutput, after: ScoredOutput, joined: Joined) -> None:
    """Raise ComparisonError when rows of one number are not the same row of the same table.

    Up to 200 rows, evenly spread, are compared in the input's columns that both outputs have.
    """
    columns = sorted(_input_columns(before) & _input_columns(after))
    spread = np.linspace(0, len(joined.left) - 1, min(_SAMPLE, len(joined.left))).astype(int)
    rows_before = before.rows([int(i) for i in joined.left[spread]], columns)
    rows_after = after.rows([int(i) for i in joined.right[spread]], columns)
    for number, (a, b) in enumerate(zip(rows_before, rows_after, strict=True)):
        different = next((name for name in columns if a[name] != b[name]), None)
        if different is not None:
            position = int(joined.left[spread[number]])
            row = before.rows([position], [ROW_NUMBER])[0][ROW_NUMBER]
            raise ComparisonError(
                f"{before.name} and {after.name} scored different tables: row {row} has"
                f" {shown(a[different])} in the column {different!r} of one and"
                f" {shown(b[different])} in the other.",
                remedy="score the same input with both, or name the column that identifies a row"
                " in input.key of both",
            )


def _input_columns(output: ScoredOutput) -> set[str]:
    metric_columns = {name for name in output.columns if name.startswith(METRIC_PREFIX)}
    return set(output.columns) - metric_columns - OWN_COLUMNS


def _arrays(table: Any, key: str, metrics: tuple[str, ...]) -> tuple[Any, ...]:
    numbers = ["logprob", "output_tokens", *(METRIC_PREFIX + name for name in metrics)]
    return (
        _keys(table.column(key)),
        _fingerprints(table.column("output").to_pylist()),
        _fingerprints(table.column("label").to_pylist()),
        np.array([bool(text) for text in table.column("error").to_pylist()], dtype=bool),
        *(_floats(table.column(name)) for name in numbers),
    )


def _concatenated(parts: list[tuple[Any, ...]], metrics: tuple[str, ...]) -> Side:
    keys, *arrays = map(np.concatenate, zip(*parts, strict=True))
    output, label, is_error, logprob, tokens, *values = arrays
    return Side(
        keys=pd.Index(keys),
        output=output,
        label=label,
        is_error=is_error,
        logprob=logprob,
        tokens=tokens,
        metrics=dict(zip(metrics, values, strict=True)),
    )


def _keys(column: Any) -> Any:
    """Return keys: numbers stay numbers, which need less memory; all else are objects."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy()
    keys = np.empty(len(column), dtype=object)
    keys[:] = column.to_pylist()
    return keys


def _fingerprints(values: list[Any]) -> Ints:
    """Return 64 bits of each text, equal for equal texts in this process."""
    # Python's hash of the empty text is 0, which is for rows without one.
    return np.fromiter(
        (_NOTHING if value is None else hash(value) or _EMPTY for value in values),
        np.int64,
        len(values),
    )


def _floats(column: Any) -> Floats:
    array: Floats = column.cast("float64").to_numpy(zero_copy_only=False)
    return array


def _check_unique(keys: pd.Index[Any], key: str, name: str) -> None:
    # Rows that could not be read have no key, and an error.
    repeated = keys[keys.notna() & keys.duplicated(keep=False)]
    if repeated.empty:
        return
    times = int((repeated == repeated[0]).sum())
    raise ComparisonError(
        f"The key {key!r} does not identify the rows of {name}: {shown(repeated[0])} is the key of"
        f" {times:,} rows, and {len(repeated):,} rows share their key with another one.",
        remedy="name a column in input.key whose values are all different, or leave it out to use"
        " the number of the row",
    )


def shown(value: Any) -> str:
    """Return a value for a message; numpy's numbers as Python's."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else f"{text[:59]}…"
