"""Two scorings compared in the terminal and into a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llmops_kernel.store.store import RunStore
from tests.cli.conftest import Llmops
from tests.services.scoring.outputs import scored, scored_run

LONG = "word " * 400
OLD = [scored(i, f"old {i}", metric_exact_match=0.0) for i in range(5)]
NEW = [
    scored(0, "[red]new[/] :smile:", metric_exact_match=1.0),
    scored(1, LONG, metric_exact_match=1.0),
    *(scored(i, f"old {i}", metric_exact_match=0.0) for i in range(2, 5)),
]


@pytest.fixture
def runs(home: Path) -> None:
    store = RunStore()
    scored_run(store, "s-1", OLD, created_s=1.0)
    scored_run(store, "s-2", NEW, created_s=2.0)
    scored_run(store, "s-3", NEW[:2], created_s=3.0, success=False)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("columns", [80, 1000])
def test_metrics_and_counts_fit_a_terminal_and_a_file(
    columns: int,
    llmops: Llmops,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if columns == 80:
        # Rich takes 80 columns for a terminal that cannot do anything.
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert llmops("compare", "s-1", "s-2") == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= columns for line in shown.splitlines())
    metric = next(line for line in shown.splitlines() if "exact_match " in line)
    assert metric.split()[:4] == ["exact_match", "0", "0.4", "+0.4"]
    assert "identical outputs" in shown
    assert "--rows flipped" in shown


@pytest.mark.usefixtures("runs")
def test_rows_are_printed_as_they_are(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("compare", "s-1", "s-2", "--rows", "flipped", "--limit", "20") == 0
    shown = capsys.readouterr().out
    assert "exact_match 0 → 1" in shown
    assert "[red]new[/] :smile:" in shown
    assert LONG.strip().split() == shown.split("after")[2].split("rows")[0].split()
    assert "rows 1 to 2 of 2: flipped" in shown


@pytest.mark.usefixtures("runs")
def test_pages_of_rows(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("compare", "s-1", "s-2", "--rows", "all", "--limit", "2", "--offset", "2") == 0
    shown = capsys.readouterr().out
    assert "rows 3 to 4 of 5" in shown
    assert llmops("compare", "s-1", "s-2", "--rows", "error") == 0
    assert "no rows: error in one or both" in capsys.readouterr().out


@pytest.mark.usefixtures("runs")
def test_an_unfinished_scoring_is_compared_without_rows(
    llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("compare", "s-2", "s-3") == 0
    assert "s-3 has not finished" in capsys.readouterr().out
    assert llmops("compare", "s-2", "s-3", "--rows", "all") == 1
    assert "has 2 rows" in capsys.readouterr().err


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "nicer"), "flipped"),
        (("--rows", "better", "--metric", "nicer"), "exact_match"),
    ],
)
def test_unknown_names_are_answered_with_the_known(
    arguments: tuple[str, ...],
    message: str,
    llmops: Llmops,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert llmops("compare", "s-1", "s-2", *arguments) == 1
    assert message in capsys.readouterr().err
