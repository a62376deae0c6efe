"""What the normal editor knows of a config: proposals, explanations, squiggles, the check."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage
from tests.browser.native.accessible import assert_accessible

pytestmark = pytest.mark.browser
CONFIG = "model: tiny-llama\ndata:\n  train: rows.jsonl\n"
PROPOSALS = ".cm-tooltip-autocomplete li"
ANSWER = ".llmops-configs-answer"


@pytest.fixture
def tab(lab: Lab, lab_page: Any) -> LabPage:
    (lab.work / "rows.jsonl").write_text('{"text": "one"}\n')
    (lab.work / "a.train.yaml").write_text(CONFIG)
    tab = LabPage(lab_page, lab)
    tab.open("/tree/a.train.yaml")
    lab_page.get_by_role("button", name="Check").wait_for()
    lab_page.locator(".cm-content").click()
    lab_page.keyboard.press("Control+End")
    return tab


def lines(tab: LabPage) -> list[str]:
    return [line.rstrip("\n") for line in tab.page.locator(".cm-line").all_inner_texts()]


def test_proposals_by_typing_and_by_tab(tab: LabPage) -> None:
    page = tab.page
    page.keyboard.type("optim")
    page.locator(PROPOSALS, has_text="optimizer").wait_for()
    page.wait_for_timeout(200)
    page.keyboard.press("Tab")
    # A section opens its line below and proposes its fields.
    page.locator(PROPOSALS, has_text="learning_rate").wait_for()
    assert lines(tab)[-2:] == ["optimizer:", "  "]
    page.keyboard.type("weight_d")
    page.locator(PROPOSALS, has_text="weight_decay").wait_for()
    page.wait_for_timeout(200)  # CodeMirror takes no Return right after its list has changed.
    page.keyboard.press("Enter")
    page.keyboard.type("0.1\n")
    page.keyboard.press("Escape")
    assert lines(tab)[-2] == "  weight_decay: 0.1"
    page.keyboard.type("lr_sched")
    page.locator(PROPOSALS, has_text="lr_scheduler_type").wait_for()
    page.wait_for_timeout(200)
    page.keyboard.press("Tab")
    page.locator(PROPOSALS, has_text="constant_with_warmup").wait_for()


def test_mistakes_are_marked_explained_and_repaired(tab: LabPage) -> None:
    page = tab.page
    page.keyboard.type("sed: 3\n")
    page.keyboard.press("Escape")
    mark = page.locator(".cm-lintRange-error", has_text="sed")
    mark.wait_for()
    page.get_by_role("button", name="Check").click()
    page.locator(ANSWER, has_text="did you mean seed?").wait_for()
    page.locator(f"{ANSWER} li button").click()
    assert page.evaluate("window.getSelection().toString()") == "sed"
    page.keyboard.press("Control+Shift+M")
    panel = page.locator(".cm-panel-lint")
    panel.get_by_text("Change to seed").click()
    mark.wait_for(state="detached")
    assert "seed: 3" in lines(tab)
    page.locator(ANSWER, has_text="was changed after this check").wait_for()
    page.get_by_role("button", name="Check").click()
    tried = page.locator(f"{ANSWER} .llmops-configs-tried li")
    tried.filter(has_text=re.compile(r"of rows\.jsonl (was|were) read")).wait_for(timeout=120_000)
    page.locator(ANSWER, has_text="Trains tiny-llama").wait_for()
    tab.shots("config-check")
    assert_accessible(page, ANSWER)


def test_the_check_looks_at_files_and_saves_nothing(tab: LabPage) -> None:
    page = tab.page
    (tab.lab.work / "rows.jsonl").write_text("not json\n")
    page.keyboard.type("seed: 9\n")
    page.get_by_role("button", name="Check").click()
    page.locator(ANSWER, has_text="row 1: not JSON").wait_for(timeout=120_000)
    assert (tab.lab.work / "a.train.yaml").read_text() == CONFIG


def test_hover_explains_a_field(tab: LabPage) -> None:
    tab.page.locator(".cm-line", has_text="train:").hover(position={"x": 30, "y": 8})
    tab.page.locator(".llmops-configs-hover", has_text="data.train").wait_for()


def test_other_yaml_is_left_alone(lab: Lab, lab_page: Any) -> None:
    (lab.work / "compose.yaml").write_text("model: x\n")
    tab = LabPage(lab_page, lab)
    tab.open("/tree/compose.yaml")
    lab_page.locator(".jp-FileEditor .cm-content").wait_for()
    lab_page.wait_for_timeout(1000)
    assert lab_page.get_by_role("button", name="Check").count() == 0
    assert lab_page.locator(".llmops-configs-editor").count() == 0


def test_a_renamed_file_gets_its_help(lab: Lab, lab_page: Any) -> None:
    (lab.work / "named.train.yaml").unlink(missing_ok=True)  # of a first try
    (lab.work / "plain.yaml").write_text(f"# not named yet\n{CONFIG}")
    tab = LabPage(lab_page, lab)
    tab.open("/tree/plain.yaml")
    # An editor of an earlier page may come back before this one: Lab would not find the old name.
    lab_page.locator(".jp-FileEditor .cm-content", has_text="not named yet").wait_for()
    lab_page.evaluate(
        "void window.jupyterapp.serviceManager.contents.rename('plain.yaml', 'named.train.yaml')"
    )
    lab_page.get_by_role("button", name="Check").wait_for()


def test_a_script_config_is_edited_as_a_training_config_is(lab: Lab, lab_page: Any) -> None:
    (lab.work / "train.py").write_text("print('hello')\n")
    (lab.work / "a.script.yaml").write_text("script: train.py\n")
    tab = LabPage(lab_page, lab)
    tab.open("/tree/a.script.yaml")
    lab_page.get_by_role("button", name="Submit").wait_for()
    lab_page.locator(".cm-content").click()
    lab_page.keyboard.press("Control+End")
    lab_page.keyboard.type("num_w")
    lab_page.locator(PROPOSALS, has_text="num_workers").wait_for()
    lab_page.wait_for_timeout(200)
    lab_page.keyboard.press("Tab")
    lab_page.keyboard.type("2\n")
    lab_page.keyboard.press("Escape")
    assert "num_workers: 2" in lines(tab)
    lab_page.get_by_role("button", name="Check").click()
    lab_page.locator(ANSWER, has_text="Runs train.py on 2 workers").wait_for()
    lab_page.locator(".cm-content").click()
    lab_page.keyboard.press("Control+End")
    lab_page.keyboard.type("workers: 3\n")
    lab_page.locator(".cm-lintRange-error", has_text="workers").wait_for()
    tab.shots("script-config")
