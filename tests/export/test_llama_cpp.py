"""`--to gguf`: llama.cpp itself reads the file, and answers as the model does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.export.conftest import PROMPT, Store, greedy
from tests.export.test_gguf import save_model

PROMPTS = [PROMPT, "the cat"]
NUM_TOKENS = 24
# llama.cpp in a process of its own: it brings an OpenMP beside PyTorch's.
ANSWER = """
import json, sys
import xllamacpp

model, prompts, num_tokens, answers = json.load(sys.stdin)
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.cpuparams.n_threads = model, 512, 1
params.warmup = params.fit_params = False
server = xllamacpp.Server(params)
texts = []
for prompt in prompts:
    request = {"prompt": prompt, "n_predict": num_tokens, "temperature": 0}
    answer = server.handle_completions(request)
    answer = answer if isinstance(answer, dict) else json.loads(answer)
    texts.append(answer["choices"][0]["text"])
with open(answers, "w") as file:
    json.dump(texts, file)
"""


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {"tie_word_embeddings": True, "rope_theta": 50_000.0}),
        ("Llama", {"tie_word_embeddings": False}),
        ("Qwen2", {"tie_word_embeddings": True}),
    ],
)
def test_llama_cpp_answers_as_the_model(tmp_path: Path, kind: str, changes: dict[str, object]):
    folder = save_model(tmp_path / "model", kind, **changes)
    store = Store(tmp_path / "home")
    run = store.add("full-1", folder, what="model")
    store.export(run, tmp_path / "out", to="gguf", quantization="f32")
    model, answers = tmp_path / "out/adding-F32.gguf", tmp_path / "answers.json"
    done = subprocess.run(
        [sys.executable, "-c", ANSWER],
        input=json.dumps([str(model), PROMPTS, NUM_TOKENS, str(answers)]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(answers.read_text()) == greedy(folder, PROMPTS, max_tokens=NUM_TOKENS)
