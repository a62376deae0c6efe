"""A row's answers over the steps in the panel: by keyboard, in both themes and widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.store import RunStore
from tests.browser.lab import Lab
from tests.browser.lab_page import NARROW, LabPage, opened
from tests.browser.native.accessible import assert_accessible
from tests.server.runs import make_run, worker

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN = "menu-tags-261123-101500-5a5a"
OTHER = "menu-tags-261123-091500-4b4b"
HOSTILE = "<img src=x onerror=alert(1)>"
ANSWERS = {
    0: ("Thai soup soup soup soup soup", "I am a model. I am a model."),
    40: ("cuisine thai, vegetarian no", "Thai food is food from Thailand."),
    80: (f"cuisine thai, vegetarian no, spicy yes {HOSTILE}", "Thai food is hot and sour."),
}
PROMPT = (
    "<|im_start|>user\nTom Kha Gai, coconut soup with chicken<|im_end|>\n<|im_start|>assistant\n"
)
PANEL = ".lm-DockPanel .llmops-run:visible"


def samples(first: str, second: str) -> tuple[dict[str, str], ...]:
    reference = "cuisine thai, vegetarian no, spicy yes"
    return (
        {"row": "12", "prompt": PROMPT, "prediction": first, "reference": reference},
        {"row": "prompt 1", "prompt": "What is Thai food?", "prediction": second},
    )


def add_run(store: RunStore, run_id: str, last_step: int, **more: Any) -> None:
    make_run(store, run_id, steps=last_step, ended=None, host="elsewhere", **more)
    journal = worker(store, run_id)
    for step, answers in ANSWERS.items():
        if step > last_step:
            break
        evaluation = EvalEvent(
            step=step,
            metrics={"eval_loss": 2.0 - step / 100},
            num_rows=75,
            duration_s=3.4,
            answers_s=2.9,
            samples=samples(*answers),
        )
        journal.emit(evaluation)
    journal.close()


@pytest.fixture
def tab(chromium: Any, lab: Lab) -> Iterator[LabPage]:
    store = RunStore(lab.home)
    add_run(store, OTHER, 40, learning_rate=5e-4, created_s=1e9)
    add_run(store, RUN, 80)
    with opened(chromium, lab, "samples", width=1100, height=1000) as tab:
        yield tab
    for run_id in (RUN, OTHER):
        store.delete(run_id)


def test_one_row_is_followed_over_the_steps(tab: LabPage) -> None:
    tab.command("llmops:open-run", runId=RUN)
    panel = tab.page.locator(PANEL)
    title = panel.get_by_text("Samples at step 80; all answers were generated in 2.9 s")
    title.wait_for(timeout=30_000)
    answers = panel.locator(".llmops-answers")
    assert answers.count() == 2
    summary = answers.first.locator("summary")
    assert summary.inner_text() == "3 answers since step 0"
    summary.focus()
    tab.page.keyboard.press("Enter")
    lines = answers.first.locator(".llmops-answer")
    assert [line.split("\n")[0] for line in lines.all_inner_texts()] == [
        "step 0",
        "step 40",
        "step 80",
    ]
    assert "spicy yes" in " ".join(lines.last.locator("mark").all_inner_texts())
    assert HOSTILE in lines.last.inner_text()
    assert panel.locator(".llmops-sample img").count() == 0
    assert_accessible(tab.page, f"[id='llmops-run-{RUN}']")
    for width in (1100, 1920):
        tab.page.set_viewport_size({"width": width, "height": 1000})
        answers.first.scroll_into_view_if_needed()
        tab.page.wait_for_timeout(400)
        assert answers.first.evaluate("e => e.open")
        assert lines.first.evaluate("e => e.scrollWidth <= e.clientWidth")
    tab.shots("samples", NARROW)


def test_answers_of_two_runs_stand_side_by_side(tab: LabPage) -> None:
    tab.command("llmops:compare-runs", runIds=[RUN, OTHER])
    table = tab.page.locator(".llmops-compare:visible .llmops-compare-samples")
    table.wait_for(timeout=30_000)
    rows = table.locator("tbody tr")
    assert rows.count() == 2
    prompt, reference, first, second = rows.first.locator("td").all()
    assert "Tom Kha Gai" in prompt.inner_text()
    assert reference.inner_text() == "cuisine thai, vegetarian no, spicy yes"
    assert first.locator("mark").count() == 0
    assert "spicy yes" in " ".join(second.locator("mark").all_inner_texts())
    assert table.locator("img").count() == 0
    assert_accessible(tab.page, ".llmops-compare-widget")
    tab.shots("compare-samples", NARROW)
