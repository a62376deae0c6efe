"""A score run on vLLM beside `ray.data.llm` on the same rows, in one sitting, one after the other.

    pip install --target LIBRARIES pandas pyarrow   # Ray Data needs them in vLLM's environment
    python -m tests.benchmarks.ray_data_llm LIBRARIES [--rows 768] [--runs 3]

Both use vLLM of `llmops score-env`, all cores, bfloat16 and the same batch. Ray Data loads the
model in each job; our second job finds it loaded. Prints for each side the seconds of a whole job
of one batch and of all rows, and what is between the two: output tokens per second without loading.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.score_engines import BATCH, CONTEXT, MODEL, TOKENS, ours, write_inputs

PROGRAM = """
import json, os, sys, time
import ray
from ray.data.llm import build_processor, vLLMEngineProcessorConfig
model, chats, tokens, context, batch = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
begin = time.perf_counter()
ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
settings = {"OMP_NUM_THREADS": str(os.cpu_count()), "VLLM_CPU_KVCACHE_SPACE": "1"}
config = vLLMEngineProcessorConfig(
    model_source=model,
    batch_size=batch,
    concurrency=1,
    log_engine_metrics=False,
    engine_kwargs={
        "dtype": "bfloat16", "enforce_eager": True, "max_model_len": context, "max_num_seqs": batch
    },
    placement_group_config={"bundle_per_worker": {"CPU": 1}},
    runtime_env={"env_vars": settings},
)
processor = build_processor(
    config,
    preprocess=lambda row: {
        "messages": json.loads(row["chat"]),
        "sampling_params": {"temperature": 0, "max_tokens": tokens},
    },
    postprocess=lambda row: {"tokens": row["num_generated_tokens"]},
)
rows = [{"chat": json.dumps(chat)} for chat in json.load(open(chats))]
blocks = ray.data.from_items(rows, override_num_blocks=len(rows) // batch)
tokens = [int(row["tokens"]) for row in processor(blocks).iter_rows()]
print("DONE", len(tokens), sum(tokens), time.perf_counter() - begin, flush=True)
"""


class Job(NamedTuple):
    seconds: float
    tokens: int


def ray_data(folder: Path, model: Path, libraries: Path, rows: int) -> Job:
    """One job of as many rows, in a Ray of its own."""
    from llmops_kernel import score_env

    line = [str(score_env.python()), "-c", PROGRAM, str(model), str(folder / "chats.json")]
    found = subprocess.run(
        [*line, str(TOKENS), str(CONTEXT), str(BATCH)],
        env={**os.environ, "PYTHONPATH": str(libraries), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=580,
    )
    done = [text for text in found.stdout.splitlines() if text.startswith("DONE")]
    if not done:
        raise SystemExit(f"ray.data.llm ended with {found.returncode}:\n{found.stderr[-3000:]}")
    _, count, tokens, seconds = done[0].split()
    assert int(count) == rows, done[0]
    return Job(float(seconds), int(tokens))


def our_run(cluster: Any, path: Path) -> Job:
    begin = time.perf_counter()
    run = ours(cluster, path)
    seconds = time.perf_counter() - begin
    summary = json.loads((Path(run.output) / "_metrics.json").read_text())
    return Job(seconds, summary["output_tokens"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", type=Path, help="folder with pandas and pyarrow")
    parser.add_argument("--rows", type=int, default=768)
    parser.add_argument("--runs", type=int, default=3)
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

    model, sizes = catalogue.prepare(MODEL), (BATCH, arguments.rows)
    found: dict[str, list[list[Job]]] = {"ray.data.llm": [], "ours": []}
    for sitting in range(arguments.runs):
        jobs = []
        for size in sizes:
            write_inputs(folder, size, 2 * sitting + (size > BATCH))
            jobs.append(ray_data(folder, model, arguments.libraries, size))
        found["ray.data.llm"].append(jobs)
        # Neither side has the other's processes beside it.
        cluster, jobs = llmops.up("local"), []
        try:
            ours(cluster, write_inputs(folder, 8, -1))  # Loads the engine.
            for size in sizes:
                path = write_inputs(folder, size, 2 * sitting + (size > BATCH))
                jobs.append(our_run(cluster, path))
            found["ours"].append(jobs)
        finally:
            cluster.down(force=True)
    for name, sittings in found.items():
        print_side(name, sittings)


def print_side(name: str, sittings: list[list[Job]]) -> None:
    rates = [(many.tokens - few.tokens) / (many.seconds - few.seconds) for few, many in sittings]
    few, many = (statistics.median(jobs[n].seconds for jobs in sittings) for n in (0, 1))
    shown = ", ".join(f"{rate:,.0f}" for rate in rates)
    print(
        f"{name:>13}: {few:.1f} s a job of {BATCH} rows, {many:.1f} s of all,"
        f" between them {statistics.median(rates):,.0f} output tokens/s ({shown})"
    )


if __name__ == "__main__":
    main()
