"""The plan of a config as a tab: memory by what it is for, another template, an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.lab import Lab
from tests.browser.lab_page import NARROW, LabPage
from tests.browser.native.accessible import assert_accessible
from tests.metrics.test_flops import CONFIGS

pytestmark = pytest.mark.browser
TEXT = """model: llama
method: full
data: {train: shelf.jsonl, max_length: 4096}
parallelism: {strategy: zero3, num_workers: 8, gradient_checkpointing: true}
training: {micro_batch_size: 1, global_batch_size: 8, max_steps: 100}
"""
TAB = ".llmops-plan"


def test_a_config_is_planned_before_anything_is_rented(lab: Lab, lab_page: Any) -> None:
    (lab.work / "llama").mkdir()
    (lab.work / "llama" / "config.json").write_text(json.dumps(CONFIGS["Llama-2-7B"]))
    (lab.work / "shelf.jsonl").write_text('{"text": "one"}\n')
    (lab.work / "big.train.yaml").write_text(TEXT)
    tab = LabPage(lab_page, lab)
    tab.open("/tree/big.train.yaml")
    lab_page.get_by_role("button", name="Plan", exact=True).focus()
    lab_page.keyboard.press("Enter")
    plan = lab_page.locator(TAB)
    # This machine has no GPU.
    plan.locator("tr[data-level=warning]", has_text="does not fit").wait_for()
    plan.get_by_label("Machines of").select_option("gcp-h100")
    plan.get_by_text("Memory of one device: 8 x H100 SXM").wait_for()
    plan.locator("tr", has_text="6.74 billion weights, all trained").wait_for()
    plan.locator("tr[data-level=plain]", has_text="a GPU: fits").wait_for()
    labels = plan.locator(".llmops-plan-parts th").all_inner_texts()
    assert labels[:3] == ["weights", "gradients", "optimizer states"]
    tab.shots("plan-tab", NARROW)
    assert_accessible(lab_page, TAB)
    (lab.work / "llama" / "config.json").write_text("<b>no JSON</b>")
    plan.get_by_role("button", name="Refresh").click()
    plan.get_by_text("cannot be read as a model's config").wait_for()
