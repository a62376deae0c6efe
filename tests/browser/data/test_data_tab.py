"""The data of a config as a tab: findings, lengths, tokens, one row; by keyboard."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.lab import Lab
from tests.browser.lab_page import NARROW, LabPage
from tests.browser.native.accessible import assert_accessible

pytestmark = pytest.mark.browser
CONFIG = """model: tiny-llama
data:
  train: shop.jsonl
  eval: held.jsonl
  max_length: 80
training: {micro_batch_size: 4, global_batch_size: 16}
"""
TAB = ".llmops-data"


def rows(count: int) -> list[dict[str, str]]:
    found = [
        {
            "prompt": f"Which {['fruit', 'drink', 'cheese'][n % 3]} is on shelf {n}?",
            "completion": f"On shelf {n} is the best one: number {n % 7}" + "!" * (n % 29),
        }
        for n in range(count)
    ]
    return [*found, found[3]]


def write(lab: Lab, name: str, made: list[dict[str, str]]) -> None:
    (lab.work / name).write_text("".join(json.dumps(row) + "\n" for row in made))


def test_the_data_of_a_config_is_looked_at_before_it_runs(lab: Lab, lab_page: Any) -> None:
    write(lab, "shop.jsonl", rows(60))
    write(lab, "held.jsonl", [rows(60)[5], {"prompt": "What is new?", "completion": "<b>That</b>"}])
    (lab.work / "shop.train.yaml").write_text(CONFIG)
    tab = LabPage(lab_page, lab)
    tab.open("/tree/shop.train.yaml")
    lab_page.get_by_role("button", name="Data").focus()
    lab_page.keyboard.press("Enter")
    data = lab_page.locator(TAB)
    data.locator("tr", has_text="61 rows of shop.jsonl").wait_for()
    for warning in ("are longer than max_length=80", "repeat another one", "among 61 rows"):
        data.locator("tr[data-level=warning]", has_text=warning).wait_for()
    assert data.locator(".llmops-data-limit").inner_text() == "max_length 80"
    first = data.locator(".llmops-data-row").first
    loss = first.locator("[data-kind=loss]").all_inner_texts()
    assert "".join(loss) == "On shelf 0 is the best one: number 0<|end|>"
    lab_page.get_by_label("Row", exact=True).fill("61")
    lab_page.keyboard.press("Enter")
    data.locator(".llmops-data-chosen", has_text="row 61: prompt_completion").wait_for()
    tab.shots("data-tab", NARROW)
    assert_accessible(lab_page, TAB)

    lab_page.get_by_role("button", name="Evaluation rows").press("Enter")
    data.locator(".llmops-data-row", has_text="What is new?").wait_for()
    assert "<b>That</b>" in data.locator(".llmops-data-row").last.inner_text()

    # Faults of the data take the place of what was found before.
    (lab.work / "shop.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    data.get_by_role("button", name="Refresh").press("Enter")
    data.get_by_role("alert").get_by_text("shop.jsonl, row 2: not valid JSON").wait_for()
    assert data.locator("tr", has_text="rows of").count() == 0


def test_both_sides_of_a_pair_are_shown_with_what_is_learnt(lab: Lab, lab_page: Any) -> None:
    pairs = [
        {"prompt": f"What is on shelf {n}?", "chosen": f"The best: {n}", "rejected": "<b>No</b>"}
        for n in range(20)
    ]
    write(lab, "pairs.jsonl", pairs)
    text = "model: tiny-llama\ndata: pairs.jsonl\nobjective: dpo\n"
    (lab.work / "pairs.train.yaml").write_text(text)
    tab = LabPage(lab_page, lab)
    tab.open("/tree/pairs.train.yaml")
    lab_page.get_by_role("button", name="Data").press("Enter")
    data = lab_page.locator(TAB)
    data.locator("tr", has_text="20 rows of pairs.jsonl").wait_for()
    first = data.locator(".llmops-data-row").first
    loss = "".join(first.locator("[data-kind=loss]").all_inner_texts())
    assert loss == "The best: 0<|end|><b>No</b><|end|>"
    assert first.inner_text().index("[chosen]") < first.inner_text().index("[rejected]")
    tab.shots("data-tab-pairs", NARROW)
    assert_accessible(lab_page, TAB)
