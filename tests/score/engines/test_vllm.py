"""The vLLM engine keeps the protocol, and answers as the Transformers engine does.

It runs in its own environment, in a process that is started once. Both engines compute in float32
here, so that their greedy answers can be compared: where two tokens are about equally probable,
bfloat16 kernels choose either.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from llmops_kernel import score_env
from llmops_kernel.score.engines.prompts import NAN
from llmops_kernel.score.engines.protocol import Answer, Engine, EngineSpec, Job, load_engine
from llmops_kernel.score.engines.vllm import compat
from tests.score.engines import cases, checks, ties
from tests.score.engines.test_returned import LENGTH, as_texts, chosen, config_of, sentences

pytestmark = [
    pytest.mark.slow,
    pytest.mark.beside,
    pytest.mark.skipif(
        not score_env.ready(), reason="vLLM's environment is not made (make score-env)"
    ),
]
CONTEXT = 512
COMPARED = ("greedy", "text", "json", "classify", "target", "most probable", "own tokens")
COMPARED += ("one", "two")
ROOT = Path(__file__).parents[3]


def _spec(model: Path, **changes: object) -> EngineSpec:
    wanted = {"dtype": "float32", "max_model_len": CONTEXT, "max_lora_rank": 8, **changes}
    return EngineSpec(type="vllm", model=str(model), batch_size=8, **wanted)  # type: ignore[arg-type]


def _in_its_environment(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(score_env.python()), *arguments],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )


def _run(
    spec: EngineSpec, adapters: dict[str, str], folder: Path, encoder: dict[str, Any] | None = None
) -> checks.Answers:
    wanted, found = folder / "in.json", folder / "out.json"
    fields = {name: getattr(spec, name) for name in EngineSpec.__dataclass_fields__}
    wanted.write_text(json.dumps({"spec": fields, "adapters": adapters, "encoder": encoder}))
    done = _in_its_environment("-m", "tests.score.engines.cases", str(wanted), str(found))
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(found.read_text())
    return {name: [Answer(**one) for one in answers] for name, answers in rows.items()}


@pytest.fixture(scope="module")
def adapters(
    smollm: Path,
    random_adapter: Callable[[Path, int], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    from tests.score.engines.test_transformers import _wider

    return {
        "one": random_adapter(smollm, 1),
        "two": random_adapter(smollm, 2),
        "missing": str(tmp_path_factory.mktemp("missing")),
        "other": _wider(random_adapter(smollm, 3)),
    }


@pytest.fixture(scope="module")
def answers(
    smollm: Path, adapters: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> checks.Answers:
    return _run(_spec(smollm), adapters, tmp_path_factory.mktemp("vllm"))


@pytest.fixture(scope="module")
def transformers(smollm: Path) -> Iterator[Engine]:
    engine = load_engine(replace(_spec(smollm), type="transformers"))
    yield engine
    engine.close()


def test_the_table_of_cases(answers: checks.Answers) -> None:
    checks.check(answers, context=CONTEXT)


def test_the_same_answers_as_transformers(
    answers: checks.Answers, transformers: Engine, adapters: dict[str, str]
) -> None:
    for case in cases.CASES:
        if case.name not in COMPARED:
            continue
        theirs = {case.name: cases.run_case(transformers, case, adapters)}
        pairs = zip(checks.final(answers, case.name), checks.final(theirs, case.name), strict=True)
        for mine, other in pairs:
            assert mine.prompt_tokens == other.prompt_tokens
            if mine.text != other.text:
                request = case.requests[mine.id]
                job = Job(adapter=adapters[case.adapter] if case.adapter else "")
                gap = ties.gap(transformers, request.prompt, job, (mine.text, other.text))
                print(f"a tie in {case.name} {mine.id}: {gap:.4f}")
                assert gap < ties.TIE, (case.name, mine.text, other.text)
                continue
            assert (mine.output_tokens, mine.finish) == (other.output_tokens, other.finish)
            if mine.logprob is not None:
                assert mine.logprob == pytest.approx(other.logprob, abs=0.01)
            for these, those in zip(mine.top_logprobs or (), other.top_logprobs or (), strict=True):
                assert these == pytest.approx(those, abs=0.01)
            if mine.top_tokens is not None:
                assert mine.target_tokens == other.target_tokens
                assert mine.top_tokens == other.top_tokens
            if mine.scores is not None:
                assert mine.scores == pytest.approx(other.scores, abs=0.002)


def test_more_tokens_than_the_engine_gives_name_its_option(answers: checks.Answers) -> None:
    (one,) = checks.final(answers, "more than vLLM gives")
    assert one.finish == "error"
    assert "max_logprobs: 21" in one.error


def test_the_same_vectors_as_transformers(
    smollm: Path, transformers: Engine, tmp_path: Path
) -> None:
    theirs = _run(_spec(smollm, embeds=True, max_lora_rank=0), {}, tmp_path)
    (case,) = cases.EMBED_CASES
    ours = {case.name: cases.run_case(transformers, case, {})}
    for mine, other in zip(checks.final(ours, "embed"), checks.final(theirs, "embed"), strict=True):
        assert mine.embedding == pytest.approx(other.embedding, abs=1e-3)
        assert mine.prompt_tokens == other.prompt_tokens


def test_vectors_of_an_embedding_model_are_those_of_sentence_transformers(
    smollm: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = as_texts(sentences(tmp_path / "model", smollm))
    config = config_of(folder, task="embed", engine={"type": "vllm"})
    spec, job = chosen(config)
    assert (spec.type, spec.max_model_len) == ("vllm", LENGTH)
    encoder = asdict(job.encoder) if job.encoder else None
    answers = _run(replace(spec, max_lora_rank=0), {}, tmp_path, encoder)
    model = SentenceTransformer(str(folder), device="cpu")
    expected = model.encode_document(list(cases.DISHES[:3]))
    for answer, vector in zip(checks.final(answers, "embed"), expected, strict=True):
        assert answer.embedding == pytest.approx(vector.tolist(), abs=1e-4)
        assert answer.prompt_tokens <= LENGTH


def test_nan_is_an_error_of_the_row(smollm: Path, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from llmops_kernel.score.engines.protocol import EngineSpec, Job, Request\n"
        "from llmops_kernel.score.engines.protocol import load_engine\n"
        "engine = load_engine(EngineSpec(type='vllm', model=sys.argv[1], max_model_len=64))\n"
        "engine.add(Request(id=0, prompt='The sky is'), Job(max_tokens=2))\n"
        "while engine.unfinished:\n"
        "    for answer in engine.step(): print('error', answer.error)\n"
    )
    done = _in_its_environment("-c", code, str(_with_nan(smollm, tmp_path / "nan")))
    assert "error " + NAN in done.stdout, done.stderr[-3000:]


def _with_nan(model: Path, folder: Path) -> Path:
    """Copy the model; the embedding of one token, which is its row of the head, is NaN."""
    shutil.copytree(model, folder)
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["model.embed_tokens.weight"][-1] = math.nan
    save_file(weights, path, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def said(tiny_llama: Path) -> str:
    """What one process says that looks for vLLM's names and then loads the tiny model."""
    code = (
        "import sys\n"
        "from llmops_kernel.score.engines.vllm import compat\n"
        "print('names', *vars(compat.load()))\n"
        "from llmops_kernel.score.engines.protocol import EngineSpec\n"
        "from llmops_kernel.score.engines.protocol import load_engine\n"
        "try: load_engine(EngineSpec(type='vllm', model=sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = _in_its_environment("-c", code, str(tiny_llama))
    return done.stdout + done.stderr[-2000:]


def test_a_model_whose_shapes_have_no_kernel_is_refused_when_it_is_loaded(said: str) -> None:
    """vLLM's attention on CPUs needs heads of at least 32 numbers; tiny-llama's have 16."""
    assert "ModelError" in said
    assert "head_dim=16" in said


def test_the_names_of_vllm_that_we_use_are_there(said: str) -> None:
    (line,) = (line for line in said.splitlines() if line.startswith("names "))
    assert set(line.split()) >= set(compat.NAMES), said
