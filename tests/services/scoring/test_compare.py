"""Two outputs compared: joined by key, counted, shown page by page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import ComparisonError
from llmops_kernel.services.scoring.compare import OutputComparison
from llmops_kernel.services.scoring.output import ScoredOutput
from llmops_kernel.views.score_comparison import RowKind
from tests.services.scoring.outputs import output, scored

BEFORE = [
    scored(0, "a", label="a", metric_exact_match=1.0, metric_rouge1=1.0),
    scored(1, "b c d", label="b", metric_exact_match=0.0, metric_rouge1=0.2),
    scored(2, "c", label="c", metric_exact_match=1.0, metric_rouge1=0.5),
    scored(3, None, error="the prompt is longer than the context"),
    scored(4, "e", label="e", metric_exact_match=0.0, metric_rouge1=0.1),
]
AFTER = [
    scored(2, "x", label="x", metric_exact_match=0.0, metric_rouge1=0.4),
    scored(1, "b d", label="b", metric_exact_match=1.0, metric_rouge1=0.9),
    scored(0, "a", label="a", metric_exact_match=1.0, metric_rouge1=1.0),
    scored(3, "d", label="d", metric_exact_match=1.0, metric_rouge1=1.0),
    scored(5, "f", label="f", metric_exact_match=1.0, metric_rouge1=1.0),
]


@pytest.fixture
def compared(tmp_path: Path) -> OutputComparison:
    """Rows are in another order, one is missing on each side, one has an error."""
    return OutputComparison(output(tmp_path / "old", BEFORE), output(tmp_path / "new", AFTER))


def test_means_are_of_the_rows_that_both_have(compared: OutputComparison) -> None:
    change = {one.name: one for one in compared.metrics}["rouge1"]
    assert change.rows == 3
    assert change.before == pytest.approx((1.0 + 0.2 + 0.5) / 3)
    assert change.after == pytest.approx((1.0 + 0.9 + 0.4) / 3)
    assert change.delta == pytest.approx(0.2)
    assert change.low is not None
    assert change.high is not None
    assert change.low < 0.2 < change.high
    assert (change.num_better, change.num_worse, change.num_same) == (1, 1, 1)


def test_rows_are_counted(compared: OutputComparison) -> None:
    found = compared.difference
    assert (found.before, found.after, found.metric) == ("old", "new", "exact_match")
    assert found.counts == {
        "all": 4,
        "better": 1,
        "worse": 1,
        "same": 1,
        "flipped": 2,
        "changed": 2,
        "only_before": 1,
        "only_after": 1,
    }
    assert (found.errors_before, found.errors_after) == (1, 0)


@pytest.mark.parametrize(
    ("kind", "metric", "keys"),
    [
        ("all", None, [0, 1, 2, 3]),
        ("flipped", None, [1, 2]),
        ("better", "rouge1", [1]),
        ("worse", "rouge1", [2]),
        ("same", "rouge1", [0]),
        ("changed", None, [1, 2]),
        ("error", None, [3]),
        ("only_before", None, [4]),
        ("only_after", None, [5]),
    ],
)
def test_rows_of_a_kind(
    kind: RowKind, metric: str | None, keys: list[int], compared: OutputComparison
) -> None:
    page = compared.rows(kind, metric=metric)
    assert [row.key for row in page.rows] == keys
    assert page.total == len(keys)


def test_a_row_has_the_texts_and_metrics_of_both(compared: OutputComparison) -> None:
    row = compared.rows("flipped").rows[1]
    assert (row.prompt, row.reference) == ("prompt 2", "reference 2")
    assert (row.before, row.after) == ("c", "x")
    assert row.before_metrics == {"exact_match": 1.0, "rouge1": 0.5}
    assert row.after_metrics == {"exact_match": 0.0, "rouge1": 0.4}


def test_errors_and_missing_rows_are_shown_as_such(compared: OutputComparison) -> None:
    failed = compared.rows("error").rows[0]
    assert failed.before is None
    assert failed.before_error == "the prompt is longer than the context"
    assert failed.before_metrics == {"exact_match": None, "rouge1": None}
    only = compared.rows("only_after").rows[0]
    assert (only.before, only.after, only.prompt) == (None, "f", "prompt 5")


def test_pages_follow_each_other(compared: OutputComparison) -> None:
    pages = [compared.rows(offset=offset, limit=3) for offset in (0, 3, 6)]
    assert [[row.key for row in page.rows] for page in pages] == [[0, 1, 2], [3], []]
    assert {page.total for page in pages} == {4}


def test_the_largest_change_comes_first(tmp_path: Path) -> None:
    ours = [scored(i, metric_rouge1=0.0) for i in range(5)]
    theirs = [scored(i, metric_rouge1=value) for i, value in enumerate((0.1, 0.9, 0.0, 0.5, 0.9))]
    compared = OutputComparison(output(tmp_path / "a", ours), output(tmp_path / "b", theirs))
    assert [row.key for row in compared.rows("better").rows] == [1, 4, 3, 0]


def test_outputs_that_stayed(compared: OutputComparison) -> None:
    found = compared.stability
    # of "a", "b c d" -> "b d", "c" -> "x"; row 3 had none before
    assert (found.rows, found.sampled) == (3, 2)
    assert found.identical == pytest.approx(1 / 3)
    assert found.similarity == pytest.approx((1 + 2 * 2 / 5 + 0) / 3)


def test_rows_without_text_have_no_stability(tmp_path: Path) -> None:
    rows = [scored(i, None) for i in range(2)]
    found = OutputComparison(output(tmp_path / "a", rows), output(tmp_path / "b", rows)).stability
    assert (found.rows, found.identical, found.similarity) == (0, None, None)


def test_perplexity_is_of_tokens_and_lower_is_better(tmp_path: Path) -> None:
    def row(number: int, tokens: int, perplexity: float) -> dict[str, Any]:
        logprob = -tokens * math.log(perplexity)
        return scored(number, output_tokens=tokens, logprob=logprob, metric_perplexity=perplexity)

    ours = output(tmp_path / "a", [row(0, 1, 8.0), row(1, 9, 2.0)])
    theirs = output(tmp_path / "b", [row(0, 1, 4.0), row(1, 9, 2.0)])
    change = OutputComparison(ours, theirs).metrics[0]
    assert change.before == pytest.approx((8 * 2**9) ** 0.1)
    assert change.after == pytest.approx((4 * 2**9) ** 0.1)
    assert (change.better, change.num_better, change.num_worse) == ("lower", 1, 0)
    assert change.low is not None
    assert change.high is not None
    assert change.low == pytest.approx(-4)
    assert change.high == 0


def test_metrics_of_whole_tables_have_no_interval(tmp_path: Path) -> None:
    rows = [scored(0, metric_sentence_bleu=0.5)]
    totals = {"bleu": 0.4, "sentence_bleu": 0.5, "ece": 0.1, "own": 1}
    first = output(tmp_path / "a", rows, totals={"metrics": totals})
    second = output(
        tmp_path / "b", rows, totals={"bleu": 0.5, "sentence_bleu": 0.5, "ece": 0.3, "x": "text"}
    )
    changes = {one.name: one for one in OutputComparison(first, second).metrics}
    assert set(changes) == {"sentence_bleu", "bleu", "ece"}
    assert changes["bleu"].delta == pytest.approx(0.1)
    assert changes["ece"].better == "lower"
    assert (changes["ece"].low, changes["ece"].rows) == (None, None)


def test_a_column_may_join_rows_of_tables_in_another_order(tmp_path: Path) -> None:
    ours = [scored(0, "a", id="x"), scored(1, "b", id="y")]
    theirs = [scored(0, "b", id="y", text="edited"), scored(1, "a", id="x")]
    compared = OutputComparison(
        output(tmp_path / "a", ours), output(tmp_path / "b", theirs), key="id"
    )
    assert compared.difference.counts["changed"] == 0
    assert [row.key for row in compared.rows().rows] == ["x", "y"]


def test_rows_without_a_key_are_in_neither(tmp_path: Path) -> None:
    """As those that could not be read."""
    broken = [scored(i, None, id=None, error="not JSON") for i in (0, 2)]
    rows = [broken[0], scored(1, "a", id="x"), broken[1]]
    compared = OutputComparison(
        output(tmp_path / "a", rows), output(tmp_path / "b", rows[::-1]), key="id"
    )
    counts = compared.difference.counts
    assert (counts["all"], counts["only_before"], counts["only_after"]) == (1, 2, 2)
    assert [row.before_error for row in compared.rows("only_before").rows] == ["not JSON"] * 2
    assert [row.key for row in compared.rows().rows] == ["x"]
    none = output(tmp_path / "c", broken)
    with pytest.raises(ComparisonError, match="No row of a has the same 'id'"):
        OutputComparison(compared.outputs[0], none, key="id")


def test_a_chat_is_shown_as_json(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Crème?"}]
    ours = output(tmp_path / "a", [scored(0, "a", prompt=chat)])
    shown = OutputComparison(ours, ours).rows().rows[0].prompt
    assert shown == '[{"role": "user", "content": "Crème?"}]'


def test_one_unfinished_output_is_refused_with_its_rows(tmp_path: Path) -> None:
    output(tmp_path / "a", BEFORE)
    with pytest.raises(ComparisonError, match=r"b has not finished.*has 5 rows and no _SUCCESS"):
        output(tmp_path / "b", AFTER, success=False)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    from llmops_kernel.services.scoring.output import ScoredOutput

    with pytest.raises(ComparisonError, match="gone cannot be read") as raised:
        ScoredOutput(str(tmp_path / "gone"), name="gone")
    assert "folder" in raised.value.remedy


def test_a_broken_part_is_named(tmp_path: Path) -> None:
    output(tmp_path / "a", BEFORE)
    (tmp_path / "a" / "part-00000001.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ComparisonError, match=r"part-00000001\.parquet of a cannot be read"):
        output(tmp_path / "a", [])


@pytest.mark.parametrize(
    ("ours", "theirs", "key", "message"),
    [
        ([scored(0, id="x")], [scored(0, id="y")], "id", "first ones are 'x' and 'y'"),
        ([scored(0, id=1)], [scored(0, id="1")], "id", "first ones are 1 and '1'"),
        ([scored(0, id="x"), scored(1, id="x")], [scored(0, id="x")], "id", "key of 2 rows"),
        ([scored(0)], [scored(0)], "id", "no column 'id'"),
        ([scored(0)], [scored(0, text="other")], "", "different tables: row 0 has 'text 0'"),
        ([scored(0)], [], "", "b has no rows"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    ours: list[Any], theirs: list[Any], key: str, message: str, tmp_path: Path
) -> None:
    first, second = output(tmp_path / "a", ours), output(tmp_path / "b", theirs)
    with pytest.raises(ComparisonError, match=message) as raised:
        OutputComparison(first, second, key=key)
    assert raised.value.remedy


def test_unknown_kinds_and_metrics_are_refused(compared: OutputComparison) -> None:
    with pytest.raises(ComparisonError, match="'nicer'") as raised:
        compared.rows("nicer")  # type: ignore[arg-type]
    assert "flipped" in raised.value.remedy
    with pytest.raises(ComparisonError, match="'bleu'") as raised:
        compared.rows("better", metric="bleu")
    assert "rouge1" in raised.value.remedy


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    first = output(tmp_path / "a", [scored(0, ""), scored(1, ""), scored(2, "")])
    second = output(tmp_path / "b", [scored(0, None), scored(1, ""), scored(2, "c")])
    compared = OutputComparison(first, second)
    assert compared.difference.counts["changed"] == 1
    assert (compared.stability.rows, compared.stability.identical) == (2, 0.5)


def test_without_a_metric_rows_can_only_change(tmp_path: Path) -> None:
    first = output(tmp_path / "a", [scored(0, "a", metric_confidence=0.5)])
    second = output(tmp_path / "b", [scored(0, "b", metric_confidence=0.9)])
    found = OutputComparison(first, second).difference
    assert found.metric is None
    assert "better" not in found.counts
    assert found.counts["changed"] == 1


def test_a_url_of_a_scheme_that_only_fsspec_knows(tmp_path: Path) -> None:
    import fsspec

    from llmops_kernel.services.scoring.output import ScoredOutput

    folder = output(tmp_path / "a", BEFORE).url
    memory = fsspec.filesystem("memory")
    memory.put(f"{folder}/", "/scored-a/", recursive=True)
    try:
        far = ScoredOutput("memory://scored-a", name="far")
        near = ScoredOutput(f"file://{folder}", name="near")
        assert far.num_rows == near.num_rows == 5
        assert OutputComparison(far, near).stability.identical == 1.0
    finally:
        memory.rm("/scored-a", recursive=True)


def queried(folder: Path, found: Sequence[float | None], corpus: str = "c") -> ScoredOutput:
    """Write an output of vectors, with the recall of its queries; None: the row repeats a query."""
    numbers = [number for number, recall in enumerate(found) if recall is not None]
    columns = {
        "row_number": numbers,
        "nearest": [f"{folder.name} {number}" for number in numbers],
        "recall@10": [recall for recall in found if recall is not None],
    }
    folder.mkdir(parents=True)
    table = pa.table(columns).replace_schema_metadata({"corpus": corpus})
    pq.write_table(table, folder / "_retrieval.parquet")
    return output(folder, [scored(number, None) for number in range(len(found))])


def test_queries_that_find_their_text_in_one_scoring_only_have_flipped(tmp_path: Path) -> None:
    before = queried(tmp_path / "a", [1.0, 0.0, None, 0.5, 1.0])
    after = queried(tmp_path / "b", [1.0, 1.0, None, 1.0, 0.0])
    compared = OutputComparison(before, after)
    (recall,) = compared.metrics
    assert (recall.name, recall.rows, recall.before, recall.after) == ("recall@10", 4, 0.625, 0.75)
    assert compared.metric == "recall@10"
    page = compared.rows("flipped")
    assert [(row.key, row.before, row.after) for row in page.rows] == [
        (1, "a 1", "b 1"),
        (4, "a 4", "b 4"),
    ]
    assert compared.rows("better").total == 2, "also one that finds more of its texts"
    assert compared.stability.rows == 4
    with pytest.raises(ComparisonError, match="among other texts"):
        OutputComparison(before, queried(tmp_path / "c", [1.0] * 5, "other"))
