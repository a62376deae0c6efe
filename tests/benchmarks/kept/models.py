"""A kept model, mapped, against one that is read: time, memory, and 200 runs of five models.

    python -m tests.benchmarks.kept.models --model SmolLM2-135M-Instruct --rounds 7 --turns 200

Each load is in a process of its own, read and mapped in turn; the files are in the page cache both
times. Memory is what the process shares with no other (unique set size) after a forward and
backward pass with LoRA, with a second such process beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT = 2**40


def context(cache: Path, keep: int) -> Any:
    from llmops_kernel.train.context import WorkerContext

    return WorkerContext(
        run_id="b", folder=cache, workspace=cache, cache=cache, keep_bytes=keep, user="b"
    )


def load(source: str, cache: Path, keep: int) -> tuple[Any, str]:
    """Load as a LoRA run does; return the model and the words of its phase."""
    from llmops_kernel.config.reading.load import training_config_from_dict
    from llmops_kernel.train.hooks import Hooks
    from llmops_kernel.train.model.kept import Keeping
    from llmops_kernel.train.model.load import load_model

    config = training_config_from_dict({"model": source, "data": "x", "method": "lora"})
    words: list[str] = []
    keeping = Keeping.of(source, config, context(cache, keep))
    model = load_model(source, config, Hooks(), keeping=keeping, say=words.append)
    return model, words[0]


def one(source: str, cache: Path, keep: int) -> None:
    """In a process of its own: print seconds, words; after a line of input, the memory."""
    import psutil
    import torch

    torch.set_num_threads(1)
    load(str(_tiny()), cache / "tiny", 0)  # Modules that a forked process has imported.
    begun_s = time.perf_counter()
    model, words = load(source, cache, keep)
    print(json.dumps({"s": time.perf_counter() - begun_s, "words": words}), flush=True)
    tokens = torch.arange(1, 65)[None]
    model(input_ids=tokens, labels=tokens).loss.backward()
    print("stepped", flush=True)
    sys.stdin.readline()
    print(psutil.Process().memory_full_info().uss / 2**20, flush=True)
    sys.stdin.readline()


def _tiny() -> Path:
    from llmops_kernel.models.catalogue import prepare

    return prepare("tiny-llama")


class Loaded:
    """A process that has loaded the model and made a step."""

    def __init__(self, source: str, cache: Path, keep: int) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.kept.models", "--one", source]
        self._process = subprocess.Popen(
            [*command, "--cache", str(cache), "--keep", str(keep)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        self.seconds, self.words = float(told["s"]), str(told["words"])
        assert self._process.stdout.readline() == "stepped\n"

    def uss_mib(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate("\n")


def compare(source: str, cache: Path, rounds: int) -> None:
    from llmops_kernel.train.model.kept import KEPT, MAPPED

    writer = Loaded(source, cache, LIMIT)
    assert writer.words == KEPT, writer.words
    print(f"read and kept: {writer.seconds:.3f} s")
    writer.close()
    seconds: dict[int, list[float]] = {0: [], LIMIT: []}
    memory: dict[int, list[float]] = {0: [], LIMIT: []}
    for _ in range(rounds):
        for keep in seconds:
            pair = [Loaded(source, cache, keep) for _ in range(2)]
            assert all(each.words == (MAPPED if keep else "") for each in pair)
            seconds[keep] += [each.seconds for each in pair]
            memory[keep] += [each.uss_mib() for each in pair]
            for each in pair:
                each.close()
    for name, keep in (("read", 0), ("mapped", LIMIT)):
        took, used = seconds[keep], statistics.median(memory[keep])
        print(
            f"{name:7} {statistics.median(took):.3f} s ({min(took):.3f} - {max(took):.3f}),"
            f" {used:.0f} MiB of its own, {len(took)} loads"
        )
    ratio = statistics.median(seconds[0]) / statistics.median(seconds[LIMIT])
    print(
        f"read / mapped: {ratio:.1f} in time, "
        f"{statistics.median(memory[0]) / statistics.median(memory[LIMIT]):.2f} in memory"
    )


def turns(folder: Path, count: int) -> None:
    """Loads of five models in turn, of which three fit into the limit."""
    import gc

    import psutil

    from llmops_kernel.store.kept.models import KeptModels

    models = []
    for number in range(5):
        models.append(shutil.copytree(_tiny(), folder / f"model-{number}"))
    cache, said = folder / "turns", {"mapped": 0, "read": 0}
    load(str(models[0]), cache, LIMIT)
    [first] = KeptModels(cache).all()
    limit, most = int(3.5 * first.num_bytes), 0
    rss: list[float] = []
    for number in range(count):
        _, words = load(str(models[number // 3 % 5]), cache, limit)
        said["mapped" if words.startswith("mapped") else "read"] += 1
        most = max(most, sum(path.stat().st_size for path in (cache / "kept-models").iterdir()))
        gc.collect()
        rss.append(psutil.Process().memory_info().rss / 2**20)
    print(
        f"{count} loads of five models in one process, room for three: {said['mapped']} mapped,"
        f" {said['read']} read; at most {most / limit:.2f} of the limit on the disk;"
        f" memory {rss[count // 4]:.0f} MiB after a quarter, {rss[-1]:.0f} at the end"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        one(asked.one, asked.cache, asked.keep)
        return
    os.environ["TQDM_DISABLE"] = "1"
    from llmops_kernel.models.catalogue import is_catalogue_name, prepare

    source = str(prepare(asked.model)) if is_catalogue_name(asked.model) else asked.model
    with tempfile.TemporaryDirectory(prefix="llmops-k-") as folder:
        compare(source, Path(folder), asked.rounds)
        turns(Path(folder), asked.turns)


if __name__ == "__main__":
    main()
