"""Figures of a scoring benchmark, its plan, its table and its picture."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from llmops_kernel.cli.score_table import plan_table, score_table
from llmops_kernel.views.score_bench import (
    ScoreFigures,
    ScoreMeasured,
    ScoreSetting,
    points_of,
    render_png,
    score_plan,
)

RATES = {1: 100.0, 2: 200.0, 4: 400.0, 8: 410.0, 16: 415.0}


def figures(*, num_gpus: float = 0, rates: dict[int, float] = RATES) -> ScoreFigures:
    setting = ScoreSetting(
        name="tags", model="SmolLM2-135M-Instruct", engine="vllm", rows=64, max_tokens=24,
        tensor_parallel=2, cluster="local", num_cpus=2, num_gpus=num_gpus,
        time=datetime(2026, 11, 22, tzinfo=UTC),
    )  # fmt: skip
    runs = [
        ScoreMeasured(
            replicas=copies, batch_size=size, run_id="r", rows_per_second=rate * copies / 20,
            output_tokens_per_second=rate * copies + noise,
            prompt_tokens_per_second=rate * 3 * copies,
        )
        for copies in (1, 2) for size, rate in rates.items() for noise in (-5, 0, 30)
    ]  # fmt: skip
    return ScoreFigures(setting=setting, points=points_of(runs))


def test_a_point_is_the_median_of_its_runs() -> None:
    point = figures().curve(2)[2]
    assert (point.batch_size, point.output_tokens_per_second) == (4, 800.0)
    assert point.runs == (795.0, 800.0, 830.0)


def test_each_number_of_replicas_has_a_knee() -> None:
    found = figures()
    assert [knee.batch_size for n in found.replicas if (knee := found.knee(n))] == [4, 4]


def test_without_a_knee_the_fastest_is_advised() -> None:
    found = figures(rates={1: 100.0, 2: 200.0, 4: 400.0})
    assert found.knee(1) is None
    assert (advised := found.advised(1)) is not None
    assert advised.batch_size == 4
    assert not score_plan(found, rows=10).lines[0].is_knee


def test_a_result_is_the_same_after_it_was_saved() -> None:
    found = figures()
    assert ScoreFigures.model_validate_json(found.model_dump_json()) == found


def test_a_plan_on_gpus_counts_those_of_all_replicas() -> None:
    """20 rows/s with one replica: a million rows take 50,000 s on its two GPUs."""
    one, two = score_plan(figures(num_gpus=8), rows=1_000_000, price_per_hour=2.0).lines
    assert one.wall_s == pytest.approx(50_000)
    assert one.unit_hours == pytest.approx(2 * 50_000 / 3600)
    assert one.money == pytest.approx(4 * 50_000 / 3600)
    assert two.wall_s == pytest.approx(25_000)
    assert two.unit_hours == pytest.approx(one.unit_hours)


def test_a_plan_without_gpus_counts_the_clusters_cpus_and_knows_no_price() -> None:
    plan = score_plan(figures(), rows=1_000_000)
    assert plan.unit == "CPU"
    assert [line.unit_hours for line in plan.lines] == pytest.approx(
        [2 * 50_000 / 3600, 2 * 25_000 / 3600]
    )
    assert {line.money for line in plan.lines} == {None}
    assert any("no price" in text for text in plan.assumptions)


def test_the_tables_fit_80_columns() -> None:
    from rich.console import Console

    shown = io.StringIO()
    console = Console(width=80, file=shown)
    console.print(score_table(figures()))
    console.print(plan_table(score_plan(figures(), rows=1_000_000)))
    lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
    assert "1 4 400 1200 20 4.00 knee" in lines
    assert "1 8 410 1230 20.5 4.10" in lines
    assert "1 4 20 13 h 53 min 27.78 – knee" in lines
    assert max(map(len, shown.getvalue().splitlines())) <= 80


def test_the_picture_is_a_png_also_of_one_point() -> None:
    assert render_png(figures(), title="SmolLM2").startswith(b"\x89PNG")
    assert render_png(figures(rates={8: 100.0})).startswith(b"\x89PNG")
