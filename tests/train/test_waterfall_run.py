"""A real training whose loader is slow: the bars fill the wall clock, and the verdict names it."""

from __future__ import annotations

import json

import pytest

from llmops_kernel.services.verdict import verdict_of
from tests.benchmarks.waterfall import HOOKS, config_of, trained


@pytest.mark.slow
@pytest.mark.beside
def test_bars_fill_the_time_and_the_verdict_names_the_slow_loader(tmp_path):
    rows = (json.dumps({"text": f"dish number {number} of the menu"}) for number in range(64))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    # Half a second a row, so that no other process can make computing the slower part.
    slow = HOOKS["slow loader"].replace("0.02", "0.5")
    (tmp_path / "hooks.py").write_text(slow)
    config = config_of("slow loader")
    config["training"] |= {"max_steps": 6}
    run = trained(config, tmp_path, "run")
    assert run.explained == pytest.approx(1.0, abs=0.02)
    verdict = verdict_of(run.record, run.view)
    assert (verdict.bound, verdict.change) == ("data", {"data.streaming": False})
