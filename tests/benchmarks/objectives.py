"""Submit to first step on a warm local cluster: each objective beside imitation, in turn.

`python -m tests.benchmarks.objectives --rounds 6`; the first round is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

ROWS: dict[str, dict[str, Any]] = {
    "sft": {"prompt": "what is {n}?", "completion": "it is {n}"},
    "dpo": {"prompt": "what is {n}?", "chosen": "it is {n}", "rejected": "no idea"},
    "orpo": {"prompt": "what is {n}?", "chosen": "it is {n}", "rejected": "no idea"},
    "kto": {"prompt": "what is {n}?", "completion": "it is {n}", "label": True},
    "distill": {
        "prompt": "what is {n}?",
        "reference": "no",
        "target_tokens": [77, 78, 257],
        "top_logprobs": {
            "token_ids": [[77, 1], [78, 1], [257, 1]],
            "logprobs": [[-0.5, -1.5], [-0.5, -1.5], [-0.5, -1.5]],
        },
    },
    "reward": {"prompt": "what is {n}?", "chosen": "it is {n}", "rejected": "no idea"},
    "classify": {"text": "dish {n}", "label": "even"},
    "embed": {"query": "dish {n}", "positive": "a dish named {n}"},
}


def write(folder: Path, objective: str) -> Path:
    """Write a config with two steps of a tiny model, and its rows."""
    text = json.dumps(ROWS[objective])
    lines = [text.replace("{n}", str(number)) for number in range(24)]
    lines[1::2] = [line.replace("even", "odd").replace("true", "false") for line in lines[1::2]]
    (folder / f"{objective}.jsonl").write_text("\n".join(lines) + "\n")
    path = folder / f"{objective}.train.yaml"
    path.write_text(
        f"name: {objective}\nmodel: tiny-llama\ndata: {objective}.jsonl\nobjective: {objective}\n"
        "training: {micro_batch_size: 4, global_batch_size: 4, max_steps: 2}\n"
    )
    return path


def main() -> None:
    """Submit one of each in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as home:
        os.environ["LLMOPS_HOME"] = home
        import llmops_kernel as llmops

        cluster = llmops.up("local")
        try:
            # Not the home itself: packages of earlier runs would be of the workspace.
            folder = Path(home) / "work"
            folder.mkdir()
            configs = {name: write(folder, name) for name in ROWS}
            times: dict[str, list[float]] = {name: [] for name in ROWS}
            for number in range(rounds):
                for name, config in configs.items():
                    run = cluster.submit(config)
                    assert run.wait(timeout_s=300) == "SUCCEEDED", run.logs(tail=20)
                    if number:
                        times[name].append(run.view.submit_to_first_step_s or 0.0)
        finally:
            cluster.down()
    base = statistics.median(times["sft"])
    for name, taken in times.items():
        median = statistics.median(taken)
        spread = f"{min(taken):.2f} - {max(taken):.2f}"
        print(f"{name:10} {median:.2f} s ({spread}), {median - base:+.2f} s beside sft")


if __name__ == "__main__":
    main()
