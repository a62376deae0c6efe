"""Try it: both models of a run are asked in Lab, on a real cluster and with a model that writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from llmops_kernel.models import catalogue
from llmops_kernel.store.store import RunStore
from tests.browser.lab import Lab
from tests.browser.lab_page import NARROW, LabPage, opened
from tests.browser.native.accessible import assert_accessible
from tests.score.chat.trained import add_trained_run

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(500)]

MODEL = "SmolLM2-135M-Instruct"  # The tiny model's answers have no text.
ANSWER_MS = 240_000
SIDE = ".llmops-chat-side[data-model='{}']"
STORY = "Write a long story about a river."
LONG_PROMPT = " ".join(["Describe the difference between them in plain words."] * 40)
WRITING = """() => [...document.querySelectorAll(".llmops-chat-message[data-final='false']")]
  .some(one => one.querySelector('.llmops-chat-text').innerText.trim())"""
COLOR = "element => getComputedStyle(element).color"
END_IN_SIGHT = """() => {
  const { scrollHeight, scrollTop, clientHeight } = document.querySelector('.llmops-chat-scroll');
  return scrollHeight > clientHeight && scrollHeight - scrollTop - clientHeight < 48;
}"""
SIDES = ("base", "tuned")


def save_adapter(folder: Path) -> Path:
    """Write a LoRA adapter of the model, as PEFT does, with weights drawn from a seed."""
    shape = json.loads((catalogue.prepare(MODEL) / "config.json").read_text())
    size, rank, draw = shape["hidden_size"], 8, np.random.default_rng(1)
    tensors = {}
    for layer in range(shape["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_"
        for part, wanted in (("A", (rank, size)), ("B", (size, rank))):
            tensors[f"{name}{part}.weight"] = draw.normal(0, 0.2, wanted).astype(np.float32)
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank}
    config |= {"base_model_name_or_path": MODEL, "target_modules": ["q_proj"]}
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


class Chat:
    """The tab as a user has it."""

    def __init__(self, tab: LabPage, run_id: str) -> None:
        self.tab, self.page, self.run_id = tab, tab.page, run_id
        self.prompt = self.page.get_by_role("textbox", name="Prompt for both models")
        self.open()

    def open(self) -> None:
        self.tab.command("llmops:open-run", runId=self.run_id)
        self.page.get_by_role("tab", name="Try it").click()

    def button(self, name: str) -> Any:
        return self.page.locator(".llmops-chat").get_by_role("button", name=name, exact=True)

    def set(self, label: str, value: str) -> None:
        settings = self.page.locator(".llmops-chat-settings")
        field = settings.get_by_label(label)
        if not field.is_visible():
            settings.locator("summary").click()
        if label == "Ask":
            field.select_option(label=value)
        else:
            field.fill(value)

    def ask(self, text: str) -> None:
        self.prompt.fill(text)
        self.prompt.press("Enter")
        self.button("Stop").wait_for()

    def wait_for_words(self) -> None:
        """Wait until a model is seen to write, before its end; which one is first may differ."""
        self.page.wait_for_function(WRITING, timeout=ANSWER_MS)

    def wait_for_end(self) -> None:
        self.button("Send").wait_for(timeout=ANSWER_MS)

    def texts(self, side: str, role: str) -> list[str]:
        shown = f"{SIDE.format(side)} [data-role='{role}'] .llmops-chat-text"
        return [str(text) for text in self.page.locator(shown).all_inner_texts()]

    def conversation(self) -> list[list[str]]:
        return [self.texts(side, role) for side in SIDES for role in ("user", "assistant")]

    def facts(self) -> list[str]:
        return [str(text) for text in self.page.locator(".llmops-chat-facts").all_inner_texts()]


@pytest.fixture
def tab(team: Lab, chromium: Any) -> Iterator[LabPage]:
    with opened(chromium, team, "try", width=1100, height=900) as page:
        yield page


def test_ask_both_models_stop_and_reload(team: Lab, tab: LabPage, tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "adapter")
    run_id = f"lora-260101-120000-{tmp_path.name[-1]:0>4}"  # When it is run again, another one.
    add_trained_run(RunStore(team.home), adapter, run_id=run_id, cluster="team", model=MODEL)
    chat = Chat(tab, run_id)
    tab.page.get_by_text("The same prompt goes to the fine-tuned model").wait_for()
    _ask_both(chat)
    _stop_with_escape(chat)
    _reload(chat)
    _stop_the_only_one(chat)
    chat.button("New conversation").click()
    chat.page.get_by_text("Ask both models").wait_for()
    assert [text for text in tab.errors if "llmops" in text.lower()] == []


def _ask_both(chat: Chat) -> None:
    """One prompt goes to both models, and their answers are side by side."""
    chat.set("Longest answer, tokens", "12")
    chat.ask(STORY)
    chat.wait_for_end()
    answers = [chat.texts(side, "assistant")[0] for side in SIDES]
    assert all(answers)
    assert answers[0] != answers[1]
    assert all("12 tokens" in text for text in chat.facts())
    base, tuned = (chat.page.locator(SIDE.format(side)).bounding_box() for side in SIDES)
    assert base["x"] + base["width"] < tuned["x"]
    assert base["y"] == tuned["y"]


def _stop_with_escape(chat: Chat) -> None:
    chat.prompt.press("Shift+Enter")
    assert chat.prompt.input_value() == "\n"
    chat.set("Longest answer, tokens", "3000")
    chat.ask(LONG_PROMPT)
    chat.wait_for_words()
    chat.prompt.press("Escape")
    chat.wait_for_end()
    assert all("stopped" in text for text in chat.facts())
    chat.page.wait_for_function(END_IN_SIGHT, timeout=30_000)
    chat.tab.shots("try-stopped", NARROW)
    assert_accessible(chat.page, ".llmops-chat")
    # In windows of other widths the lines break elsewhere: the newest words stay in view.
    chat.page.wait_for_function(END_IN_SIGHT, timeout=30_000)


def _reload(chat: Chat) -> None:
    before = chat.conversation()
    assert before[0] == before[2] == [STORY, LONG_PROMPT]
    chat.tab.reload()
    chat.open()
    chat.page.wait_for_selector(SIDE.format("tuned"))
    assert chat.conversation() == before


def _stop_the_only_one(chat: Chat) -> None:
    chat.set("Ask", "the fine-tuned model")
    chat.set("Longest answer, tokens", "3000")
    chat.ask(STORY)
    chat.wait_for_words()
    chat.button("Stop").click()
    chat.wait_for_end()
    assert chat.page.locator(SIDE.format("base")).count() == 0
    prompts = chat.texts("tuned", "user")  # One that was stopped before an answer is left out.
    assert len(prompts) >= 2
    assert prompts[0] == prompts[-1] == STORY


def test_a_model_that_cannot_be_loaded(team: Lab, tab: LabPage, tmp_path: Path) -> None:
    """Its column has the error and what to do; the other model answers."""
    fields = {"run_id": "full-260101-130000-" + "x" * 60, "what": "model", "model": MODEL}
    run_id = add_trained_run(RunStore(team.home), tmp_path, cluster="team", **fields)
    chat = Chat(tab, run_id)
    chat.set("Longest answer, tokens", "12")
    chat.ask(STORY)
    chat.wait_for_end()
    error = chat.page.locator(f"{SIDE.format('tuned')} [role='alert']")
    assert str(tmp_path) in error.inner_text()
    assert "Try:" in error.inner_text()
    message, remedy = (error.locator(f".llmops-lab-{part}") for part in ("message", "remedy"))
    assert remedy.evaluate(COLOR) == message.evaluate(COLOR)  # Both can be read.
    assert chat.texts("base", "assistant")[0]
    chat.tab.shots("try-error", NARROW)


def test_a_run_without_a_model_has_no_tab(team: Lab, tab: LabPage) -> None:
    run_id = add_trained_run(RunStore(team.home), None, run_id="lora-260101-130000-none")
    tab.command("llmops:open-run", runId=run_id)
    tab.page.get_by_role("tab", name="Notes").wait_for()
    assert tab.page.get_by_role("tab", name="Try it").count() == 0
