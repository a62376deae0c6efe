"""A student that learns a teacher's probabilities beside one that learns the same answers plainly.

`python -m tests.benchmarks.distillation --steps 12`: the rows of `llmops init --example distill`,
in the same order and for as many steps; the weight of the answers is 1 (imitation), 0.5 and 0.
Held-out rows tell the loss of the true answers, how near the student is to the teacher, and how
many of its own answers are exact. `--write FOLDER` first makes these rows anew, for FOLDER
llmops_kernel/services/gallery/files/data: with `--teacher-steps 40` a LoRA adapter of
SmolLM2-135M-Instruct is trained as `alpaca.train.yaml` says, and `teacher.score.yaml` scores them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import llmops_kernel as llmops

NUM_TRAIN, NUM_EVAL = 160, 32
WEIGHTS = (1.0, 0.5, 0.0)
KEPT = ("messages", "prompt_tokens", "target_tokens", "top_logprobs")
DIGITS = 4
"""Decimals of the log-probabilities in the example: its files are a part of the package."""


def scored(cluster: Any, folder: Path, run_id: str, part: str, count: int) -> list[dict[str, Any]]:
    """Score answers with the model of a run; return the rows that a student needs."""
    run = cluster.score(
        folder / "teacher.score.yaml",
        make_env=False,
        overrides=[
            f"model.run={run_id}",
            f"input.path=data/alpaca-{part}.jsonl",
            f"input.limit={count}",
            "engine.type=transformers",
        ],
    )
    assert run.wait(timeout_s=1800) == "SUCCEEDED", run.logs(tail=20)
    rows = [
        row
        for file in sorted(Path(run.output).glob("part-*"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert not any(row["error"] for row in rows)
    return [{name: rounded(row[name]) for name in KEPT} for row in rows]


def rounded(value: Any) -> Any:
    if not isinstance(value, dict) or "logprobs" not in value:
        return value
    values = [[round(one, DIGITS) for one in place] for place in value["logprobs"]]
    return {**value, "logprobs": values}


def exact(cluster: Any, folder: Path, run_id: str) -> float:
    """Return the share of held-out rows that the model of a run answers exactly."""
    run = cluster.score(
        folder / "teacher.score.yaml",
        make_env=False,
        overrides=[
            f"model.run={run_id}",
            "input.path=data/alpaca-eval.jsonl",
            f"input.limit={NUM_EVAL}",
            "task.type=generate",
            "task.top_k=null",
            "sampling.max_tokens=24",
            "evaluation.metrics=[exact_match]",
            "engine.type=transformers",
        ],
    )
    assert run.wait(timeout_s=1800) == "SUCCEEDED", run.logs(tail=20)
    metrics = json.loads((Path(run.output) / "_metrics.json").read_text())
    return float(metrics["metrics"]["exact_match"])


def compare(cluster: Any, folder: Path, steps: int) -> None:
    """Train a student with each weight of the answers, and print what came of it."""
    for weight in WEIGHTS:
        run = cluster.submit(
            folder / "distill.train.yaml",
            overrides=[f"objective.hard_weight={weight}", f"training.max_steps={steps}"],
        )
        assert run.wait(timeout_s=1800) == "SUCCEEDED", run.logs(tail=20)
        last = run.evaluations().iloc[-1]
        share = exact(cluster, folder, run.id)
        print(
            f"hard_weight {weight}: hard loss {last['eval_hard_loss']:.3f}, KL to the teacher"
            f" {last['eval_kl']:.3f}, agreement {last['eval_teacher_agreement']:.3f}, exact match"
            f" {share:.3f}",
            flush=True,
        )


def teach(cluster: Any, folder: Path, steps: int, target: Path) -> None:
    """Train a teacher, and write what it gives the answers of the example."""
    teacher = cluster.submit(
        folder / "alpaca.train.yaml",
        overrides=[f"training.max_steps={steps}", "evaluation.generate=false"],
    )
    assert teacher.wait(timeout_s=3600) == "SUCCEEDED", teacher.logs(tail=20)
    print(f"teacher: loss {teacher.evaluations().iloc[-1]['eval_loss']:.3f}", flush=True)
    for part, count in (("train", NUM_TRAIN), ("eval", NUM_EVAL)):
        rows = scored(cluster, folder, teacher.id, part, count)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for place in (folder / "data", target):
            (place / f"distill-{part}.jsonl").write_text(text)
    print(f"teacher: exact match {exact(cluster, folder, teacher.id):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--teacher-steps", type=int, default=40)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["LLMOPS_HOME"] = home
        folder = Path(home) / "workspace"
        for name in ("alpaca", "distill"):
            llmops.init(folder, example=name)
        cluster = llmops.up("local")
        try:
            if arguments.write:
                teach(cluster, folder, arguments.teacher_steps, arguments.write)
            compare(cluster, folder, arguments.steps)
        finally:
            cluster.down()


if __name__ == "__main__":
    main()
