"""What a score run really writes can be compared: its tables through its sink."""

from __future__ import annotations

from pathlib import Path, PurePath

from llmops_kernel.score.engines.protocol import Answer
from llmops_kernel.score.output_table import ScoredRow, columns_of, part_table
from llmops_kernel.score.sink import METRICS, SUCCESS, Sink
from llmops_kernel.services.scoring.compare import OutputComparison
from llmops_kernel.services.scoring.join import OWN_COLUMNS
from llmops_kernel.services.scoring.output import ScoredOutput
from llmops_kernel.tables.parts import TableRow
from tests.tables.servers.running import server, store
from tests.tables.servers.start import Store

__all__ = ["server", "store"]


def write(folder: Path | str, answers: list[str]) -> ScoredOutput:
    """Four rows of a table with a column `label` of its own, in two parts; an empty one failed."""
    rows = [TableRow(i, {"id": f"k{i}", "label": "x"}) for i in range(4)]
    columns = columns_of(rows)
    columns = type(columns)(columns.names, columns.types, metrics=("exact_match",))
    sink = Sink(str(folder))
    sink.prepare()
    scored = [
        ScoredRow(row, prompt=[{"role": "user", "content": "Which tag?"}], reference="a")
        for row in rows
    ]
    for one, text in zip(scored, answers, strict=True):
        if text:
            one.answer = Answer(one.row.number, text, 3, 1, scores={"a": 0.5, "b": 0.5})
            one.metrics = {"exact_match": float(text == "a")}
        else:
            one.error = "too long"
    for index in range(2):
        sink.write_table(index, part_table(scored[2 * index : 2 * index + 2], columns, None))
    sink.append_ledger("0001", [{"index": 0}])
    sink.write(METRICS, b'{"rows": 4, "metrics": {"exact_match": 0.5, "ece": 0.25}}')
    sink.write(SUCCESS, b"{}")
    return ScoredOutput(str(folder), name=PurePath(folder).name)


def test_two_written_outputs(tmp_path: Path) -> None:
    first, second = (
        write(tmp_path / "a", ["a", "b", "b", ""]),
        write(tmp_path / "b", ["a", "a", "b", "a"]),
    )
    assert {"id", "input_label"} <= first.columns
    assert first.columns - {"id", "input_label", "metric_exact_match"} == OWN_COLUMNS
    for key in ("", "id"):
        found = OutputComparison(first, second, key=key)
        assert found.difference.counts["flipped"] == 1
        assert found.difference.counts["all"] == 4
        assert (found.difference.errors_before, found.difference.errors_after) == (1, 0)
        row = found.rows("better").rows[0]
        assert (row.prompt, row.reference, row.before, row.after) == ("Which tag?", "a", "b", "a")
        assert {change.name for change in found.metrics} == {"exact_match", "ece"}


def test_outputs_in_the_servers_of_three_stores(store: Store) -> None:
    url = f"{store.scheme}://bucket/scored"
    first = write(f"{url}/a", ["a", "b", "b", ""])
    second = write(f"{url}/b", ["a", "a", "b", "a"])
    assert (first.num_rows, second.num_rows) == (4, 4)
    found = OutputComparison(first, second, key="id")
    assert found.difference.counts["flipped"] == 1
    assert {change.name for change in found.metrics} == {"exact_match", "ece"}
