"""A score run from Lab: submit the file, watch, stop, retry, and compare it with another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import Lab
from tests.browser.lab_page import NARROW, LabPage, opened
from tests.browser.native.accessible import assert_accessible
from tests.browser.run_page import PANEL, RunPage

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]
INSTANT = Path(__file__).parents[2] / "score" / "instant.py"
ROWS, PAGE = 40, 20
HOSTILE = "<img src=x onerror=document.body.dataset.hacked=1>"
CONFIG = {
    "name": "tags",
    "model": "tiny-llama",
    "input": {"path": "rows.jsonl", "key": "id"},
    "prompt": {"template": "{text}", "reference": "text"},
    "engine": {"type": "instant:InstantEngine", "keep_s": 20, "batch_size": 4},
    "output": {"part_rows": 10},
    "evaluation": {"metrics": ["exact_match", "rouge"]},
}


def write_workspace(folder: Path, once: Path) -> None:
    """One row hangs until the run is stopped, once. The texts with markup have four words."""
    texts = [f"{HOSTILE if n % 2 == 0 else 'the number'} {n}" for n in range(ROWS)]
    texts[25] = f"[hang:{once}] number 25"
    rows = [{"id": f"row-{n}", "text": text} for n, text in enumerate(texts)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copy(INSTANT, folder)
    (folder / "first.score.yaml").write_text(json.dumps(CONFIG))
    (folder / "second.score.yaml").write_text(json.dumps({**CONFIG, "sampling": {"max_tokens": 3}}))


@pytest.fixture
def work(team: Lab, tmp_path: Path) -> Lab:
    write_workspace(team.work, tmp_path / "has-hung")
    return team


@pytest.fixture
def story(work: Lab, chromium: Any) -> Iterator[RunPage]:
    with opened(chromium, work, "score", width=1100, height=900) as tab:
        yield RunPage(tab)


def _stop_in_the_middle(story: RunPage) -> None:
    panel = story.page.locator(PANEL)
    panel.locator(".llmops-sample").first.wait_for(timeout=150_000)
    story.tab.shots("score-1-live", NARROW)
    story.press_stop()
    story.wait_for_state("Stopped")
    panel.get_by_text(f"of {ROWS} rows are scored and written").first.wait_for()


def _retry(story: RunPage) -> None:
    """Goes on where it was, and ends with metrics and the output's path."""
    story.tab.command("llmops:retry-run")
    panel = story.page.locator(PANEL)
    panel.get_by_text("attempt 2").first.wait_for(timeout=60_000)
    story.wait_for_state("Succeeded")
    panel.get_by_text(f"{ROWS} of {ROWS} rows").wait_for(timeout=30_000)
    assert story.figure("exact match") == "1"
    assert panel.locator(".llmops-outputs code").text_content().endswith("/output")
    panel.get_by_role("button", name="Copy").click()
    panel.get_by_text("Copied").wait_for()
    story.tab.shots("score-2-retried", NARROW)


def _open_flipped(story: RunPage) -> None:
    scores = story.page.locator(".llmops-scores:visible")
    rows = scores.locator(".llmops-scores-row")
    scores.locator("[data-change='worse']").filter(has_text="exact_match").wait_for(timeout=60_000)
    flipped = scores.get_by_role("button", name="flipped")
    assert flipped.get_attribute("aria-pressed") == "true"
    rows.first.wait_for(timeout=30_000)
    rows.first.get_by_role("button").click()
    opened = scores.locator(".llmops-scores-opened")
    opened.locator("mark").first.wait_for()
    assert "exact_match 1 → 0" in opened.text_content()
    story.tab.shots("score-3-compare", NARROW)
    assert_accessible(story.page, ".llmops-compare-widget")


def _page_through_all(story: RunPage) -> None:
    scores = story.page.locator(".llmops-scores:visible")
    scores.get_by_role("button", name="in both").click()
    scores.get_by_text(f"Rows 1 to {PAGE} of {ROWS}").wait_for(timeout=30_000)
    scores.get_by_role("button", name="Next").click()
    scores.get_by_text(f"Rows {PAGE + 1} to {ROWS} of {ROWS}").wait_for(timeout=30_000)
    assert scores.locator(".llmops-scores-row").count() == PAGE


def test_score_stop_retry_and_compare(story: RunPage) -> None:
    expect = "Scores the rows of rows.jsonl with tiny-llama: generate."
    first = story.submit("first.score.yaml", {}, expect=expect)
    _stop_in_the_middle(story)
    _retry(story)
    second = story.submit("second.score.yaml", {}, expect=expect)
    story.wait_for_state("Succeeded")
    story.tab.command("llmops:compare-runs", runIds=[first, second])
    _open_flipped(story)
    _page_through_all(story)
    assert story.page.evaluate("document.body.dataset.hacked") is None
    assert [error for error in story.tab.errors if "llmops" in error] == []


def test_a_score_config_is_edited_with_proposals_and_checked(lab: Lab, lab_page: Any) -> None:
    (lab.work / "eval.jsonl").write_text('{"text": "one"}\n')
    (lab.work / "a.score.yaml").write_text(
        'model: tiny-llama\ninput: eval.jsonl\nprompt: "{text}"\n'
    )
    tab = LabPage(lab_page, lab)
    tab.open()
    new = lab_page.locator(".jp-LauncherCard").filter(has_text="New Score Config")
    new.wait_for(timeout=30_000)
    tab.open("/tree/a.score.yaml")
    check = lab_page.get_by_role("button", name="Check")
    check.wait_for()
    check.click()
    lab_page.get_by_text("Scores the rows of eval.jsonl").first.wait_for(timeout=30_000)
    lab_page.keyboard.press("Escape")
    lab_page.locator(".cm-content").click()
    lab_page.keyboard.press("Control+End")
    lab_page.keyboard.type("evalu")
    proposals = lab_page.locator(".cm-tooltip-autocomplete li")
    proposals.filter(has_text="evaluation").wait_for(timeout=30_000)
