"""A user's own training script from Lab: submit, watch, stop, retry, change, compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from tests.browser.lab import Lab
from tests.browser.lab_page import NARROW, LabPage, opened
from tests.browser.run_page import PANEL, RunPage, real_lab
from tests.browser.simulated import SimulatedClusters, row
from tests.tiny_training import write_training

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]

SCRIPT = """\
import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

from llmops_kernel import track

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.1)
options = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(LlamaForCausalLM(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    vocab_size=256,
)))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
first = 1
if path := track.resume_checkpoint():
    state = torch.load(path)
    model.load_state_dict(state["model"])
    first = state["step"] + 1
track.start(total_steps=options.steps, model=model)
tokens = torch.arange(4 * 64).reshape(4, 64)
for step in range(first, options.steps + 1):
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.1)
    track.step(step=step, loss=loss, tokens_per_worker=tokens.numel(), sequence_length=64)
    if track.should_stop():
        if dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "step": step}, "state.pt")
        track.checkpoint("state.pt", step=step)
        break
dist.destroy_process_group()
"""


CUT_OFF = """() => [...document.querySelectorAll('.llmops-runs-figures, .llmops-runs-figures *')]
  .filter(element => element.scrollWidth > element.clientWidth + 1)
  .map(element => element.textContent)"""


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A Lab beside a cluster that is up. The peak is stated: a busy CPU's is not measured."""
    monkeypatch.setenv("LLMOPS_PEAK_TFLOPS", "0.5")
    with real_lab() as lab:
        (lab.work / "train.py").write_text(SCRIPT)
        write_training(lab.work, "config", method="full", rows=32, training={"max_steps": 8})
        LocalProvider(lab.home).up(ClusterTemplate(name="team", num_cpus=2))
        lab.wait()
        yield lab


class ScriptStory(RunPage):
    """What a user does, one method a chapter."""

    def watch(self) -> None:
        """Loss and MFU are numbers, and the loss moves."""
        self.wait_for_step(3)
        first = self.figure("loss")
        assert float(first) > 0
        assert self.figure("MFU").endswith("%")
        self.wait_for_step(self.step() + 5)
        assert float(self.figure("loss")) < float(first)

    def stop(self) -> int:
        """With the one button of the tab; returns the step of the checkpoint."""
        panel = self.page.locator(PANEL)
        self.press_stop()
        self.wait_for_state("Stopped")
        panel.get_by_text("after saving a checkpoint").wait_for()
        return self.step()

    def retry(self, stopped_at: int) -> None:
        """Continues behind the checkpoint and is stopped again."""
        self.tab.command("llmops:retry-run")
        panel = self.page.locator(PANEL)
        panel.get_by_text("attempt 2").first.wait_for(timeout=60_000)
        self.wait_for_state("Running")
        self.wait_for_step(stopped_at + 2)

    def resubmit(self) -> str:
        """With fewer steps; the script's config has no mistake, so none is shown."""
        before = self.run_ids()
        self.tab.command("llmops:resubmit-run")
        dialog = self.page.locator(".jp-Dialog")
        dialog.get_by_text("Runs train.py --steps 400 on 1 worker").wait_for(timeout=30_000)
        self.tab.shots("script-5-resubmit", NARROW)
        line = dialog.locator(".cm-line").filter(has_text="'400'")
        line.click()
        self.page.keyboard.press("End")
        for _ in range(len("400'")):
            self.page.keyboard.press("Backspace")
        self.page.keyboard.type("12'")
        dialog.get_by_text("Runs train.py --steps 12 on 1").wait_for(timeout=30_000)
        dialog.get_by_role("button", name="Submit").click()
        run_id = self.new_run(before)
        self.shown(run_id)
        self.wait_for_state("Succeeded")
        return run_id


@pytest.fixture
def story(work: Lab, chromium: Any) -> Iterator[ScriptStory]:
    with opened(chromium, work, "script", width=1100, height=900) as tab:
        yield ScriptStory(tab)


def test_a_script_is_a_run(story: ScriptStory) -> None:
    fill = {"Workers": "1", "Arguments": "--steps 400"}
    first = story.submit("train.py", fill, expect="Runs train.py --steps 400 on 1 worker")
    story.watch()
    story.tab.shots("script-1-live", NARROW)
    stopped_at = story.stop()
    story.tab.shots("script-2-stopped", NARROW)
    story.retry(stopped_at)
    assert story.stop() > stopped_at
    story.tab.shots("script-3-retried", NARROW)
    second = story.resubmit()
    config = story.submit("config.train.yaml", {}, expect="Trains tiny-llama")
    story.wait_for_state("Succeeded")
    assert "existed for" not in story.page.locator(PANEL).first.text_content()
    story.compare(first, second, config, changed="args")
    assert story.page.evaluate(CUT_OFF) == [], "figures of the narrow list of runs"
    heads = story.page.locator(".llmops-matrix:visible")
    for run_id in (first, second, config):
        assert heads.get_by_title(run_id).first.is_visible()
    story.tab.shots("script-6-compare", NARROW)
    assert [error for error in story.tab.errors if "llmops" in error] == []


def _refusals(page: Any) -> list[Any]:
    """Refuse each submission; the bodies are what would have been submitted."""
    bodies: list[Any] = []

    def refuse(route: Any) -> None:
        if route.request.method == "POST":
            bodies.append(route.request.post_data_json)
            route.fulfill(status=409, json={"message": "not today", "remedy": "", "problems": []})
        else:
            route.continue_()

    page.route("**/llmops/runs*", refuse)
    return bodies


def test_a_python_file_is_submitted_to_the_chosen_cluster(lab: Lab, lab_page: Any) -> None:
    (lab.work / "hello.py").write_text("print('hello')\n")
    (lab.work / "notes.txt").write_text("no script\n")
    tab = LabPage(lab_page, lab)
    SimulatedClusters(lab_page, row("team"))
    bodies = _refusals(lab_page)
    tab.open()
    command = tab.menu_item("Submit to Cluster…")
    lab_page.locator(".jp-DirListing-item").filter(has_text="notes.txt").click(button="right")
    lab_page.locator(".lm-Menu").wait_for()
    assert not command.is_visible()
    lab_page.keyboard.press("Escape")
    lab_page.locator(".jp-DirListing-item").filter(has_text="hello.py").click(button="right")
    command.click()
    dialog = lab_page.locator(".jp-Dialog")
    dialog.get_by_text("Runs hello.py once, as `python hello.py` would").wait_for(timeout=20_000)
    dialog.get_by_label("Workers").fill("2")
    dialog.get_by_label("Arguments").fill("--note 'two words")
    dialog.get_by_text("no closing quotation").wait_for(timeout=20_000)
    dialog.get_by_label("Arguments").press_sequentially("'")
    dialog.get_by_text("Runs hello.py --note 'two words' on 2 workers").wait_for(timeout=20_000)
    tab.shots("submit-script-form")
    lab_page.keyboard.press("Enter")
    lab_page.get_by_text("not today").first.wait_for(timeout=20_000)
    tab.shot("submit-script")
    [body] = bodies
    assert (body["path"], body["cluster"]) == ("hello.py", "team")
    assert body["overrides"] == ["num_workers=2", "args=\"--note 'two words'\""]
    lab_page.get_by_role("button", name="Close").or_(
        lab_page.get_by_role("button", name="OK")
    ).first.click()
    tab.command("llmops:submit-script", path="hello.py")
    assert dialog.get_by_label("Workers").input_value() == "2", "the last start is kept"
