"""The columns of a scored part."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from llmops_kernel.score.engines.protocol import Answer
from llmops_kernel.score.output_table import (
    ADDED,
    OutputColumns,
    ScoredRow,
    columns_of,
    columns_of_schema,
    part_table,
)
from llmops_kernel.tables.parts import TableRow


def _scored(*rows: TableRow) -> list[ScoredRow]:
    return [
        ScoredRow(row, Answer(n, text=f"answer {n}", output_tokens=2), prompt="p", error=row.error)
        for n, row in enumerate(rows)
    ]


def test_types_of_jsonl_columns_come_from_the_first_rows() -> None:
    rows = [
        TableRow(0, {"i": 1, "f": 1.5, "s": "a", "b": True, "mixed": 1, "list": [1]}),
        TableRow(1, {"i": None, "f": 2, "s": "b", "mixed": "x", "list": [2]}),
    ]
    columns = columns_of(rows)
    assert dict(zip(columns.names, columns.types, strict=True)) == {
        "i": "int",
        "f": "float",
        "s": "str",
        "b": "bool",
        "mixed": "str",
        "list": "json",
    }
    table = part_table(_scored(*rows), columns, None)
    assert table["f"].to_pylist() == [1.5, 2.0]
    assert table["mixed"].to_pylist() == ["1", "x"]
    assert table["output"].to_pylist() == ["answer 0", "answer 1"]


@pytest.mark.parametrize("value", ["text", 2**70, [1], 1.5])
def test_a_later_value_that_does_not_fit_is_kept_as_text(value: object) -> None:
    columns = columns_of([TableRow(0, {"n": 1})])
    rows = [TableRow(1, {"n": value}), TableRow(2, {"n": 3})]
    table = part_table(_scored(*rows), columns, None)
    assert table.schema.field("n").type == pa.int64()
    assert table["n"].to_pylist() == [None, 3]
    assert json.loads(table["input_raw"][0].as_py()) == {"n": value}
    assert table["input_raw"][1].as_py() is None


def test_all_parts_have_one_schema() -> None:
    columns = columns_of([TableRow(0, {"a": 1, "b": "x"})])
    first = part_table(_scored(TableRow(0, {"a": 1, "b": "x"})), columns, None)
    broken = TableRow(1, {}, "row 1 is not JSON", "{oops")
    second = part_table(_scored(broken, TableRow(2, {"c": 5})), columns, None)
    assert first.schema == second.schema
    assert second["input_raw"].to_pylist() == ["{oops", None]
    assert second["error"].to_pylist() == ["row 1 is not JSON", None]


def test_the_most_probable_tokens_have_columns_of_their_own() -> None:
    row = TableRow(0, {"messages": "of the input"})
    columns = OutputColumns(**{**vars(columns_of([row])), "has_top_logprobs": True})
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    top = {"top_tokens": [[7, 9], [4, 2]], "top_logprobs": [[-0.5, -1.5], [-0.25, -3.0]]}
    answer = Answer(0, target_tokens=[7, 2], **top)  # type: ignore[arg-type]
    scored = [
        ScoredRow(row, answer, prompt=prompt, reference="a"),
        ScoredRow(TableRow(1, {}), Answer(1, finish="error", error="too long"), error="too long"),
    ]
    first, second = part_table(scored, columns, None).to_pylist()
    assert first["messages"] == [*prompt, {"role": "assistant", "content": "a"}]
    assert first["target_tokens"] == [7, 2]
    assert first["top_logprobs"] == {
        "token_ids": top["top_tokens"],
        "logprobs": top["top_logprobs"],
    }
    assert first["input_messages"] == "of the input"
    assert second["top_logprobs"] is second["messages"] is None


def test_a_column_of_the_input_with_a_name_of_ours_is_renamed() -> None:
    row = TableRow(0, {"output": "old", "metric_x": 1.0, "name": "n"})
    columns = OutputColumns(**{**vars(columns_of([row])), "metrics": ("x",)})
    table = part_table(_scored(row), columns, None)
    assert table["input_output"].to_pylist() == ["old"]
    assert table["input_metric_x"].to_pylist() == [1.0]
    assert table["output"].to_pylist() == ["answer 0"]
    assert set(ADDED) <= set(table.column_names)


def test_the_output_of_a_scoring_can_be_scored_again() -> None:
    """Its renamed column took the place of the input's of that name."""
    values = {"output": "2nd", "input_output": "1st", "input_raw": "raw", "metric_x": 1.0}
    row = TableRow(0, {**values, "input_input_raw": 7})
    columns = columns_of([row])
    table = part_table(_scored(row), columns, None)
    assert table["input_input_output"].to_pylist() == ["2nd"]
    assert table["input_output"].to_pylist() == ["1st"]
    assert table["input_input_input_raw"].to_pylist() == ["raw"]
    assert table["input_input_raw"].to_pylist() == [7]
    assert len({columns.output_name(name) for name in columns.names}) == 5
    (written,) = table.to_pylist()
    assert columns.input_of(written).items() >= row.values.items()


def test_hooks_get_the_rows_of_the_input() -> None:
    """Each text that begins with a bracket was read as JSON."""
    row = TableRow(0, {"text": "[1, 2]", "deep": {"a": [1]}, "output": '{"b": 2}', "none": None})
    columns = columns_of([row])
    (written,) = part_table(_scored(row), columns, None).to_pylist()
    assert columns.input_of(written).items() >= row.values.items()
    assert written["output"] == "answer 0"


def test_parquet_columns_keep_their_types() -> None:
    source = pa.table({"when": pa.array([1, 2], pa.timestamp("s")), "deep": [{"a": 1}, {"a": 2}]})
    columns = columns_of_schema(source.schema, keep=("when",))
    rows = [TableRow(n, row) for n, row in enumerate(source.to_pylist())]
    table = part_table(_scored(*rows), columns, source)
    assert table.schema.field("when").type == pa.timestamp("s")
    assert "deep" not in table.column_names


def test_half_a_surrogate_pair_does_not_stop_the_part() -> None:
    row = TableRow(0, json.loads('{"s": "\\ud800"}'))
    scored = [ScoredRow(row, Answer(0, text="\ud800x"), prompt="\ud800")]
    table = part_table(scored, columns_of([row]), None)
    assert table["output"].to_pylist() == ["?x"]
    assert table["s"].to_pylist() == [None]


def test_an_answer_with_an_error_has_no_output() -> None:
    row = TableRow(0, {})
    scored = [ScoredRow(row, Answer(0, error="too long", finish="error"), error="too long")]
    table = part_table(scored, columns_of([row]), None)
    assert table["output"].to_pylist() == [None]
    assert table["error"].to_pylist() == ["too long"]
