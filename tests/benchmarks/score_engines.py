"""A score run on vLLM beside plain offline vLLM, in one sitting, in turn.

    python -m tests.benchmarks.score_engines [--rows 768] [--runs 3] [--replicas 2]

Plain: `vllm.LLM.chat` on the same prompts, in vLLM's own environment (`llmops score-env`), loaded
once. Ours: `llmops score` of the same rows with metrics and Parquet, on the standing engine. Prints
output tokens per second of each, their ratio, and how long a job of one token a row takes from
submit to its first rows on the standing engine. With `--replicas`, then, in turn: one replica,
which computes with all cores, and several, which divide them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
MODEL = "SmolLM2-135M-Instruct"
BATCH, CONTEXT, TOKENS = 64, 512, 24
INSTRUCTION = "Reply: cuisine | course | diet | allergens"

PLAIN = """
import json, os, sys, time
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = sys.argv[4]
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
from vllm import LLM, SamplingParams
model, chats, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
context, batch = int(sys.argv[5]), int(sys.argv[6])
engine = LLM(model, dtype="bfloat16", enforce_eager=True, max_model_len=context, max_num_seqs=batch)
sampling = SamplingParams(temperature=0, max_tokens=tokens)
print("READY", flush=True)
for line in sys.stdin:
    rows = json.load(open(chats))
    begin = time.perf_counter()
    answers = engine.chat(rows, sampling, use_tqdm=False)
    seconds = time.perf_counter() - begin
    print("DONE", sum(len(a.outputs[0].token_ids) for a in answers), seconds, flush=True)
"""


class Plain:
    """vLLM alone, in a process of its own that has loaded the model."""

    def __init__(self, folder: Path, model: Path, *, multiprocessing: bool) -> None:
        from llmops_kernel import score_env

        line = [str(score_env.python()), "-c", PLAIN, str(model), str(folder / "chats.json")]
        self._process = subprocess.Popen(
            [*line, str(TOKENS), str(int(multiprocessing)), str(CONTEXT), str(BATCH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._until("READY")

    def rate(self) -> float:
        """Output tokens per second of all rows once."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        _, tokens, seconds = self._until("DONE").split()
        return int(tokens) / float(seconds)

    def _until(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line
        raise SystemExit("plain vLLM ended: is its environment made (llmops score-env)?")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def rows_of(count: int, sitting: int) -> list[dict[str, Any]]:
    lines = (NOTEBOOKS / "data" / "menu-eval.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    # Each text once in all sittings: a prefix cache must not help either side.
    texts = [f"{row['name']}: {row['description']}" for row in rows]
    return [{"id": n, "text": f"{sitting}-{n}. {texts[n % len(texts)]}"} for n in range(count)]


def write_inputs(folder: Path, count: int, sitting: int) -> Path:
    """Write the same chats for both sides; return the config of ours."""
    rows = rows_of(count, sitting)
    chats = [
        [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": row["text"]}]
        for row in rows
    ]
    (folder / "chats.json").write_text(json.dumps(chats))
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    messages = [
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": "{text}"},
    ]
    config = {
        "name": "engines",
        "model": MODEL,
        "input": {"path": "rows.jsonl", "key": "id"},
        "prompt": {"messages": messages, "reference": "text"},
        "sampling": {"max_tokens": TOKENS},
        "engine": {"type": "vllm", "batch_size": BATCH, "max_model_len": CONTEXT},
        "evaluation": {"metrics": ["exact_match", "rouge"]},
    }
    path = workspace / "engines.score.yaml"
    path.write_text(json.dumps(config))
    return path


def ours(cluster: Any, path: Path, **changes: Any) -> Any:
    run = cluster.submit(path, overrides=changes)
    assert run.wait(900) == "SUCCEEDED"
    return run


def to_first_rows(run: Any) -> float:
    """Seconds from submit to the first rows with an answer."""
    (phase,) = [one for one in run.view.phases() if one.name == "first_rows"]
    return float(phase.end_s - run.attempts[-1].submitted_s)


def rate_of(run: Any) -> float:
    """Output tokens per second of a run."""
    return float(run.view.value("output_tokens_per_second"))


def in_turn(
    folder: Path,
    arguments: argparse.Namespace,
    sides: dict[str, Callable[[], float]],
) -> dict[str, list[float]]:
    """Measure each side once a sitting, with texts that no sitting before has had."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for sitting in range(1, 1 + arguments.runs):
        write_inputs(folder, arguments.rows, sitting)
        for name, rate in sides.items():
            rates[name].append(rate())
    return rates


def shown_ratio(rates: dict[str, list[float]]) -> None:
    """Print each side, and the second one's median as a part of the first one's."""
    for name, values in rates.items():
        shown = ", ".join(f"{value:,.0f}" for value in values)
        print(f"{name:>12}: {statistics.median(values):,.0f} output tokens/s ({shown})")
    before, after = (statistics.median(values) for values in rates.values())
    print(f"{'ratio':>12}: {after / before:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=768)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--multiprocessing", action="store_true", help="vLLM's default for plain")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="llmops-b-"))
    os.environ["LLMOPS_HOME"] = str(folder / "home")
    try:
        measure(folder, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    import llmops_kernel as llmops
    from llmops_kernel.models import catalogue

    path = write_inputs(folder, arguments.rows, 0)
    plain = Plain(folder, catalogue.prepare(MODEL), multiprocessing=arguments.multiprocessing)
    cluster = llmops.up("local")
    try:
        ours(cluster, path, **{"input.limit": 64})  # Loads the engine.
        sides = {
            "plain": plain.rate,
            "ours": lambda: rate_of(ours(cluster, path)),
        }
        shown_ratio(in_turn(folder, arguments, sides))
        plain.close()
        one = {"sampling.max_tokens": 1, "input.limit": 8}
        firsts = [to_first_rows(ours(cluster, path, **one)) for _ in range(5)]
        shown = ", ".join(f"{value:.2f}" for value in firsts)
        print(f"submit to the first token: {statistics.median(firsts):.2f} s ({shown})")
        if arguments.replicas > 1:
            scaling(cluster, folder, arguments)
    finally:
        plain.close()
        cluster.down(force=True)


def scaling(cluster: Any, folder: Path, arguments: argparse.Namespace) -> None:
    """Compare one replica with several; both may use one engine, so each has texts of its own."""
    sittings = itertools.count(arguments.runs + 1)

    def rate(replicas: int, **changes: Any) -> float:
        path = write_inputs(folder, arguments.rows, next(sittings))
        return rate_of(ours(cluster, path, **{"engine.replicas": replicas}, **changes))

    rate(arguments.replicas, **{"input.limit": 64})  # Loads the engines.
    several = f"{arguments.replicas} replicas"
    sides = {"one replica": lambda: rate(1), several: lambda: rate(arguments.replicas)}
    shown_ratio(in_turn(folder, arguments, sides))


if __name__ == "__main__":
    main()
