"""Submissions whose tokenizer the fork server has loaded, against those that load it.

    python -m tests.benchmarks.kept.tokenizer --runs 7

On one local cluster, SmolLM2-135M with LoRA, in turn by the name of its folder and by a link that
no run had before, by which only the weights are found again. Once with SmolLM2's tokenizer of
49,000 tokens, once with 102,000 more that its texts do not have. Of each submission the seconds to
the end of the first step, and of its phase `data`. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import llmops_kernel as llmops
from llmops_kernel.models.catalogue import prepare
from llmops_kernel.store.paths import HOME_ENV_VAR
from llmops_kernel.train.model.tokenizer import KEPT
from tests.benchmarks.presets import Preset, write_workspace

_SIZE = 151_000  # As Qwen's.
_RARE = frozenset("ÐÑàåæçèé")  # Bytes that no English text has.


def model_with_tokens(folder: Path, *, size: int) -> Path:
    """Copy SmolLM2, with as many tokens."""
    shutil.copytree(prepare("SmolLM2-135M-Instruct"), folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary, merges = content["model"]["vocab"], content["model"]["merges"]
    joined = isinstance(merges[0], str)
    draw, parts = random.Random(0), [one for one in vocabulary if _RARE & set(one)]
    while len(vocabulary) < size:
        pair = draw.choice(parts), draw.choice(parts)
        if (both := "".join(pair)) not in vocabulary and len(both) < 12:
            vocabulary[both] = len(vocabulary)
            merges.append(" ".join(pair) if joined else list(pair))
            parts.append(both)
    path.write_text(json.dumps(content, ensure_ascii=False))
    return folder


def submitted(cluster: llmops.Cluster, config: Path, *changes: str) -> tuple[float, float, bool]:
    """Return seconds to the first step and of the phase, and whether the tokenizer was kept."""
    run = cluster.submit(config, workspace=config.parent, overrides=list(changes))
    run.wait()
    seconds = run.view.submit_to_first_step_s
    assert seconds is not None, run.logs()
    begin, end = (e for e in run.events() if e.kind == "phase" and e.name == "data")
    return float(seconds), end.time_s - begin.time_s, KEPT in end.detail


def compare(config: Path, model: Path, *, runs: int) -> None:
    cluster = llmops.up("local")
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    try:
        for number in range(-2, runs):
            for keeps in found:
                name = model if keeps else config.parent.with_name(f"link-{model.name}-{number}")
                if not keeps:
                    name.symlink_to(model)
                total, data, was_kept = submitted(cluster, config, f"model.id={name}")
                if number >= 0:
                    assert was_kept == keeps, (name, was_kept)
                    found[keeps].append((total, data))
                time.sleep(1)
    finally:
        cluster.down()
    for keeps, words in ((False, "loaded by the run"), (True, "kept")):
        shown = []
        for values in zip(*found[keeps], strict=True):
            shown.append(f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})")
        print(f"{words:18} first step {shown[0]} s, phase data {shown[1]} s", flush=True)
    medians = [statistics.median(total for total, _ in found[keeps]) for keeps in (False, True)]
    print(f"loaded / kept: {medians[0] / medians[1]:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-tokenizer-") as folder:
        os.environ[HOME_ENV_VAR] = str(Path(folder, "home"))
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        config = write_workspace(Preset("smollm2-lora"), workspace)
        small = prepare("SmolLM2-135M-Instruct")
        large = model_with_tokens(Path(folder, "large"), size=_SIZE)
        for name, model in (("49,000 tokens", small), (f"{_SIZE:,} tokens", large)):
            print(name, flush=True)
            compare(config, model, runs=asked.runs)


if __name__ == "__main__":
    main()
