"""Twenty runs of every kind, each once more from its record: `python -m tests.soak.reproduce`.

Nothing is changed for the first fourteen: each must be equal, bit for bit. Of six more something is
changed on purpose (a data file, the hooks, a field, the number of workers, the processor's
instructions, another torch): the answer must name that, and nothing else as the first reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.views.reproduction import Reproduction
from tests.benchmarks.objectives import ROWS, write
from tests.tiny_training import write_rows, write_training

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
TORCH = "torch==2.12.0"
"""Another release than the one of constraints.txt; its other libraries are those of the cluster."""
SCRIPT = """
import torch
from llmops_kernel import track

torch.manual_seed(7)
model = torch.nn.Linear(64, 32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 9):
    loss = torch.tanh(model(torch.randn(64, 64))).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    track.step(loss=loss, tokens=64)
"""
SCORE = {
    "name": "answers",
    "model": "tiny-llama",
    "input": {"path": "rows.jsonl"},
    "prompt": {"template": "{text}", "reference": "text"},
    "sampling": {"max_tokens": 8, "temperature": 0.7},
    "engine": {"type": "transformers", "keep_s": 20, "batch_size": 4},
    "evaluation": {"metrics": ["exact_match"]},
}
HOOKS = "def format_example(row):\n    return {{'text': row['text'] + ' {word}'}}\n"

Case = tuple[str, Callable[[], Reproduction], str]
"""What it is, what compares, and the group of the first reason; empty: equal."""


class Records:
    """Makes the runs in folders of their own."""

    def __init__(self, cluster: llmops.Cluster, other: llmops.Cluster, folder: Path) -> None:
        self.cluster, self.other, self._folder = cluster, other, folder

    def equal(self) -> list[Case]:
        cases: list[Case] = []
        shapes = {
            "lora": {},
            "full, with evaluations": {
                "method": "full",
                "data": {"eval": "rows.jsonl", "max_eval_rows": 4},
            },
            "zero2, two workers": {"parallelism": {"strategy": "zero2", "num_workers": 2}},
            "zero3, two workers": {"parallelism": {"strategy": "zero3", "num_workers": 2}},
            "fsdp, two workers": {"parallelism": {"strategy": "fsdp", "num_workers": 2}},
        }
        for name, sections in shapes.items():
            two = {"micro_batch_size": 2, "global_batch_size": 4}
            config = write_training(self._new(), "tiny", training=two, **sections)
            cases.append((f"sft, {name}", lambda path=config: self._again(path), ""))
        for objective in ROWS:
            if objective != "sft":
                config = write(self._new(), objective)
                cases.append((objective, lambda path=config: self._again(path), ""))
        cases.append(("script", lambda: self._again(self._script()), ""))
        cases.append(("score", lambda: self._again(self._scoring()), ""))
        return cases

    def changed(self) -> list[Case]:
        return [
            ("a data file", self._data_file, "data"),
            ("the hooks", self._hooks, "code"),
            ("a field of the config", self._field, "config"),
            ("the number of workers", self._workers, "config"),
            ("the processor's instructions", self._instructions, "device"),
            (TORCH, self._torch, "versions"),
        ]

    def _new(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder))

    def _done(self, config: Path, *overrides: str, on: llmops.Cluster | None = None) -> llmops.Run:
        run = (on or self.cluster).submit(config, overrides=list(overrides))
        run.wait(900)
        return run

    def _again(self, config: Path) -> Reproduction:
        return self._done(config).reproduce()

    def _script(self) -> Path:
        folder = self._new()
        (folder / "train.py").write_text(SCRIPT)
        path = folder / "own.script.yaml"
        path.write_text("name: own\nscript: train.py\n")
        return path

    def _scoring(self) -> Path:
        folder = self._new()
        write_rows(folder, count=24)
        path = folder / "answers.score.yaml"
        path.write_text(json.dumps(SCORE))
        return path

    def _data_file(self) -> Reproduction:
        far = self._new()
        write_rows(far)
        rows = far / "rows.jsonl"
        run = self._done(write_training(self._new(), "tiny", data={"train": str(rows)}))
        rows.write_text(rows.read_text().replace("follows", "trails"))
        return run.reproduce()

    def _hooks(self) -> Reproduction:
        config = write_training(self._new(), "tiny", hooks=HOOKS.format(word="one"))
        run = self._done(config)
        config.with_name("hooks.py").write_text(HOOKS.format(word="two"))
        return run.reproduce(against=self._done(config))

    def _field(self) -> Reproduction:
        config = write_training(self._new(), "tiny")
        run = self._done(config)
        return run.reproduce(against=self._done(config, "optimizer.learning_rate=0.003"))

    def _workers(self) -> Reproduction:
        two = {"micro_batch_size": 2, "global_batch_size": 4}
        config = write_training(self._new(), "tiny", training=two)
        run = self._done(config)
        return run.reproduce(against=self._done(config, "parallelism.num_workers=2"))

    def _instructions(self) -> Reproduction:
        config = write_training(self._new(), "tiny", method="full", data={"max_length": 512})
        return self._done(config).reproduce(cluster=self.other)

    def _torch(self) -> Reproduction:
        config = write_training(self._new(), "tiny", method="full", data={"max_length": 512})
        run = self._done(config)
        return run.reproduce(against=self._done(config, f"packages=[{TORCH}]"))


def judged(answer: Reproduction, group: str) -> str:
    """Return what is wrong with an answer; empty: nothing."""
    if not group:
        return "" if answer.is_equal and not answer.changes else answer.text
    names = {reason.group for reason in answer.changes}
    if group not in names:
        return f"no change of the {group} is named:\n{answer.text}"
    if answer.is_equal:  # Other roundings need not show in a few small products.
        return "" if group in ("device", "versions") else f"equal all the same:\n{answer.text}"
    first = answer.reasons[0].group if answer.reasons else "nothing"
    return "" if first == group else f"first reason {first}:\n{answer.text}"


def main() -> int:
    """Compare all of them; return how many answers were wrong."""
    argparse.ArgumentParser(prog="python -m tests.soak.reproduce", description=__doc__).parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="llmops-reproduce-") as name:
        os.environ["LLMOPS_HOME"] = str(Path(name, "home"))
        provider = LocalProvider()
        provider.up(ClusterTemplate(name="first"))
        provider.up(ClusterTemplate(name="avx2", env=AVX2))
        try:
            work = Path(name, "work")
            work.mkdir()
            records = Records(llmops.cluster("first"), llmops.cluster("avx2"), work)
            for what, compare, group in (*records.equal(), *records.changed()):
                begun_s = time.monotonic()
                answer = compare()
                fault = judged(answer, group)
                wrong += bool(fault)
                said = answer.answer + "".join(f"; {each.text}" for each in answer.changes)
                print(f"{time.monotonic() - begun_s:6.1f} s  {what}: {said}", flush=True)
                if fault:
                    print(f"WRONG: {fault}", flush=True)
        finally:
            provider.down("first")
            provider.down("avx2")
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
