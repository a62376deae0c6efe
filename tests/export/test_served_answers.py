"""SmolLM2 with an adapter: each runtime that is here answers an export as base and adapter do."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel import score_env
from llmops_kernel.driver.hooks import load_functions
from llmops_kernel.models.catalogue import prepare
from tests.export.conftest import Store, greedy

pytestmark = [pytest.mark.slow, pytest.mark.beside]

MODEL = "SmolLM2-135M-Instruct"
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NUM_ROWS, MAX_TOKENS = 6, 12
STD = 0.05
"""Of the adapter's weights: the answers change, and no two tokens in them are nearly a tie."""
_VLLM = """
import json, sys
from vllm import LLM, SamplingParams
job = json.load(sys.stdin)
engine = LLM(**job["engine"], enforce_eager=True)
sampling = SamplingParams(temperature=0, max_tokens=job["max_tokens"])
done = engine.chat(job["chats"], sampling, chat_template=open(job["template"]).read())
json.dump([one.outputs[0].text for one in done], open(job["answers"], "w"))
"""


@dataclass(frozen=True)
class Trained:
    """A run's adapter, prompts of held-out rows, and the answers in float32 as the run computed."""

    adapter: Path
    chats: list[Any]
    prompts: list[str]
    answers: list[str]


def _chats() -> list[Any]:
    """Return the first held-out rows as the example's hook formats them, without their answers."""
    hook = load_functions(NOTEBOOKS / "menu_hooks.py", ("format_example",))["format_example"]
    assert hook is not None
    lines = (NOTEBOOKS / "data" / "menu-eval.jsonl").read_text().splitlines()[:NUM_ROWS]
    return [hook(json.loads(line))["messages"][:-1] for line in lines]


@pytest.fixture(scope="module")
def trained(adapter_of: Callable[..., Path]) -> Trained:
    from transformers import AutoTokenizer

    adapter, chats = adapter_of(MODEL, STD), _chats()
    tokenizer = AutoTokenizer.from_pretrained(str(adapter))
    prompts = [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        for chat in chats
    ]
    answers = greedy(prepare(MODEL), prompts, adapter=adapter, max_tokens=MAX_TOKENS)
    return Trained(adapter, chats, prompts, answers)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, trained: Trained) -> Store:
    made = Store(tmp_path_factory.mktemp("home"))
    evaluation = {"max_new_tokens": MAX_TOKENS}
    made.add("menu", trained.adapter, model=MODEL, prompts=trained.prompts, evaluation=evaluation)
    return made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """Merged weights with the command line that starts vLLM."""
    folder = tmp_path_factory.mktemp("served") / "out"
    store.export("menu", folder, to="vllm", dtype="float32", check=0)
    return folder


def test_merged_weights(served: Path, trained: Trained) -> None:
    assert len(set(trained.answers)) == NUM_ROWS
    assert greedy(served, trained.prompts, max_tokens=MAX_TOKENS) == trained.answers


def test_gguf(store: Store, tmp_path: Path) -> None:
    """Loaded back by Transformers; F16 rounds less than the distance of any two tokens here."""
    done = store.export("menu", tmp_path / "gguf", to="gguf", check=NUM_ROWS)
    assert done.notes[1].endswith(f"{NUM_ROWS} of {NUM_ROWS} greedy answers are unchanged.")


@pytest.mark.skipif(not score_env.ready(), reason="vLLM's environment is not made: make score-env")
def test_vllm_with_the_options_of_the_command_line(served: Path, trained: Trained) -> None:
    """Through vLLM's engine. Its HTTP server is not started: it needs packages that scoring does
    without, such as uvicorn and model-hosting-container-standards."""
    env = {**os.environ, "VLLM_SERVE": "printf %q\\n"}
    script = str(served / "serve.sh")
    printed = subprocess.run([script], env=env, capture_output=True, text=True, check=True).stdout
    words = shlex.split(printed)
    options = dict(pairwise(words))
    answers = served.parent / "answers.json"
    job = {
        "engine": {
            "model": str(served / words[0]),
            "dtype": options["--dtype"],
            "max_model_len": int(options["--max-model-len"]),
        },
        "template": str(served / options["--chat-template"]),
        "chats": trained.chats,
        "max_tokens": MAX_TOKENS,
        "answers": str(answers),
    }
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    quiet["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    done = subprocess.run(
        [str(score_env.python()), "-c", _VLLM],
        input=json.dumps(job),
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(answers.read_text()) == trained.answers
