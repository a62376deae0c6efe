"""Builds the Arrow table of a part: the input's columns, then what scoring adds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from llmops_kernel.score.engines.protocol import Answer, Prompt
from llmops_kernel.tables.parts import TableRow

ADDED: dict[str, pa.DataType] = {
    "row_number": pa.int64(),
    "prompt": pa.string(),
    "reference": pa.string(),
    "output": pa.string(),
    "label": pa.string(),
    "label_scores": pa.string(),
    "parsed": pa.string(),
    "logprob": pa.float64(),
    "embedding": pa.list_(pa.float32()),
    "reference_embedding": pa.list_(pa.float32()),
    "value": pa.float64(),
    "prompt_tokens": pa.int32(),
    "output_tokens": pa.int32(),
    "finish_reason": pa.string(),
    "error": pa.string(),
    "input_raw": pa.string(),
}
"""Columns that each output has; `label_scores`, `parsed` are JSON. `input_raw`: a row of the input
that could not be read or whose values do not fit the columns."""
OF_TOP_LOGPROBS: dict[str, pa.DataType] = {
    "messages": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
    "target_tokens": pa.list_(pa.int32()),
    "top_logprobs": pa.struct(
        {
            "token_ids": pa.list_(pa.list_(pa.int32())),
            "logprobs": pa.list_(pa.list_(pa.float32())),
        }
    ),
}
"""Columns of an output with `task.top_k` besides: the chat with the reference as its answer, the
tokens of that answer, and for each of them the most probable tokens (`top_k` each, the most
probable one first) with the natural logarithms of their probabilities."""
METRIC_PREFIX = "metric_"
_RENAMED = "input_"
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


@dataclass(slots=True)
class ScoredRow:
    """A row with its answer, metrics and error."""

    row: TableRow
    answer: Answer | None = None
    prompt: Prompt = ""
    reference: str | None = None
    reference_embedding: list[float] | None = None
    is_cut: bool = False
    """A text of it was longer than an embedding model reads."""
    error: str = ""
    metrics: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputColumns:
    """The columns that an output keeps of its input, equal for all parts."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    """Names of Arrow types; `json`: stored as JSON text."""
    metrics: tuple[str, ...] = ()
    is_json: bool = False
    """True if the answers are JSON."""
    has_top_logprobs: bool = False
    """True if it has the columns of `OF_TOP_LOGPROBS`."""

    @property
    def added(self) -> dict[str, pa.DataType]:
        """Return the columns that scoring adds, without metrics."""
        return {**ADDED, **OF_TOP_LOGPROBS} if self.has_top_logprobs else ADDED

    def output_name(self, name: str) -> str:
        """Return the column's name in the output, other than that of one of ours."""
        renamed = name
        while renamed in self.added or renamed.startswith(METRIC_PREFIX):
            renamed = f"{_RENAMED}{renamed}"
            while renamed in self.names:  # The input has both, as in an output scored again.
                renamed = f"{_RENAMED}{renamed}"
        return renamed

    def input_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of the output as the input had it, beside what scoring adds.

        Objects and lists of JSONL, which are stored as text, are themselves again.
        """
        result = dict(row)
        for name, kind in zip(self.names, self.types, strict=True):
            value = row[self.output_name(name)]
            result[name] = json.loads(value) if kind == "json" and value is not None else value
        return result


def columns_of(rows: Sequence[TableRow], *, keep: Sequence[str] = ()) -> OutputColumns:
    """Return the columns of JSONL rows: numbers and texts as such, all else as JSON text.

    A column with texts and numbers is one of texts.
    """
    names = dict.fromkeys(name for row in rows for name in row.values)
    selected = [name for name in names if not keep or name in keep]
    return OutputColumns(tuple(selected), tuple(_type_name(name, rows) for name in selected))


def columns_of_schema(schema: pa.Schema, *, keep: Sequence[str] = ()) -> OutputColumns:
    """Return the columns of Parquet input, with their own types."""
    selected = [name for name in schema.names if not keep or name in keep]
    return OutputColumns(tuple(selected), tuple("arrow" for _ in selected))


def _type_name(name: str, rows: Sequence[TableRow]) -> str:
    kinds = {type(row.values.get(name)) for row in rows} - {type(None)}
    if kinds == {int, float}:
        return "float"
    if str in kinds and kinds <= _TYPES.keys():
        return "str"
    if len(kinds) == 1 and (kind := kinds.pop()) in _TYPES:
        return kind.__name__
    return "json"


def part_table(
    scored: Sequence[ScoredRow], columns: OutputColumns, source: pa.Table | None
) -> pa.Table:
    """Return the part's table; `source` is the Arrow table that the rows were read from."""
    arrays: dict[str, Any] = {}
    raw = {row.row.number: row.row.raw for row in scored if row.row.raw}
    for name, kind in zip(columns.names, columns.types, strict=True):
        output_name = columns.output_name(name)
        if kind == "arrow" and source is not None and name in source.column_names:
            arrays[output_name] = source[name]
        else:
            arrays[output_name] = _input_array(name, kind, scored, raw)
    arrays.update(_added(scored, raw, columns))
    for name in columns.metrics:
        values = [row.metrics.get(name) for row in scored]
        arrays[f"{METRIC_PREFIX}{name}"] = pa.array(values, pa.float64())
    return pa.table(arrays)


def _input_array(
    name: str, kind: str, scored: Sequence[ScoredRow], raw: dict[int, str]
) -> pa.Array:
    """Return a column of JSONL input; rows with a value of another type go to `input_raw`."""
    if kind == "json":
        return pa.array([_as_json(row.row.values, name) for row in scored], pa.string())
    expected = {"bool": bool, "int": int, "float": float, "str": str}[kind]
    values: list[Any] = []
    for row in scored:
        value = row.row.values.get(name)
        if value is None or type(value) is expected:
            values.append(value)
        elif expected is float and type(value) is int:
            values.append(float(value))
        else:
            raw.setdefault(row.row.number, json.dumps(row.row.values))
            values.append(str(value) if expected is str and type(value) in _TYPES else None)
    try:
        return pa.array(values, _TYPES[expected])
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        # A whole number of more than 64 bits, or half of a surrogate pair.
        return _one_by_one(values, _TYPES[expected], scored, raw)


def _one_by_one(
    values: list[Any], kind: pa.DataType, scored: Sequence[ScoredRow], raw: dict[int, str]
) -> pa.Array:
    valid = []
    for value, row in zip(values, scored, strict=True):
        try:
            valid.append(pa.scalar(value, kind).as_py())
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            raw.setdefault(row.row.number, json.dumps(row.row.values))
            valid.append(None)
    return pa.array(valid, kind)


def _as_json(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return None if value is None else json.dumps(value)


def _added(
    scored: Sequence[ScoredRow], raw: Mapping[int, str], output: OutputColumns
) -> dict[str, pa.Array]:
    answers, errors = [row.answer for row in scored], [row.error or None for row in scored]
    good = [None if a is None or a.error else a for a in answers]
    texts = [None if a is None or a.embedding is not None else a.text for a in good]
    columns: dict[str, list[Any]] = {
        "row_number": [row.row.number for row in scored],
        "prompt": [prompt_text(row.prompt) or None for row in scored],
        "reference": [row.reference for row in scored],
        "output": texts,
        "label": [t if a and a.scores else None for a, t in zip(good, texts, strict=True)],
        "label_scores": [json.dumps(a.scores) if a and a.scores else None for a in good],
        "parsed": [
            t if output.is_json and not e else None for t, e in zip(texts, errors, strict=True)
        ],
        "logprob": [a.logprob if a else None for a in good],
        "embedding": [a.embedding if a else None for a in good],
        "reference_embedding": [row.reference_embedding for row in scored],
        "value": [a.value if a else None for a in good],
        "prompt_tokens": [a.prompt_tokens if a else None for a in answers],
        "output_tokens": [a.output_tokens if a else None for a in answers],
        "finish_reason": [a.finish if a else None for a in answers],
        "error": errors,
        "input_raw": [raw.get(row.row.number) for row in scored],
        "messages": [_chat(row) if a else None for row, a in zip(scored, good, strict=True)],
        "target_tokens": [a.target_tokens if a else None for a in good],
        "top_logprobs": [
            {"token_ids": a.top_tokens, "logprobs": a.top_logprobs} if a and a.top_tokens else None
            for a in good
        ],
    }
    return {name: _array(columns[name], kind) for name, kind in output.added.items()}


def _chat(row: ScoredRow) -> list[dict[str, str]] | None:
    """Return the messages of a row with the reference as the answer; None for a text."""
    if isinstance(row.prompt, str) or row.reference is None:
        return None
    return [*row.prompt, {"role": "assistant", "content": row.reference}]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # A lone surrogate, which a JSON text may escape.
        clean = [v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values]
        return pa.array(clean, kind)


def prompt_text(prompt: Prompt) -> str:
    """Return a chat's words: one message as it is, more with their roles."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0]["content"]
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)
