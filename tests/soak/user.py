"""One of the two users: a uid, a home, a small disk, and the `llmops` command."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from llmops_kernel.store.compiled_ops import own_ops_folder
from tests.soak.namespaces import tmpfs
from tests.tiny_training import write_rows

BASE = Path("/tmp/soak")
DISK_BYTES = 96 * 1024**2
_SECONDS = 300.0
_TEMPLATE = """\
name: local
provider: local
num_cpus: 4
object_store_memory_bytes: 100000000
stop_wait_s: 20
"""
STEPS = """\
import argparse, os, sys, time
from llmops_kernel import track

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--pause", type=float)
parser.add_argument("--truth")
options = parser.parse_args()
# What is reported is written down a second time, where the journal has no part in it.
with open(options.truth, "a") as truth:
    print("pid", os.getpid(), file=truth, flush=True)
    for step in range(1, options.steps + 1):
        track.step(step=step, loss=1 / step, tokens=64)
        print("step", step, file=truth, flush=True)
        if track.should_stop():
            break
        time.sleep(options.pause)
"""
TRAIN = """\
name: {name}
model: tiny-llama
data: {{train: rows.jsonl, max_length: 64}}
method: lora
parallelism: {{strategy: ddp, num_workers: 1}}
training: {{micro_batch_size: 2, global_batch_size: 2, max_steps: {steps}}}
evaluation: {{at_end: false}}
"""


@dataclass
class Expected:
    """One run as the soak knows it: what its script wrote, and how it may end."""

    mark: str
    truth: Path
    steps: int
    states: set[str] = field(default_factory=lambda: {"SUCCEEDED"})
    may_be_missing: bool = False
    is_deleted: bool = False
    """Also while it is being deleted."""
    may_lose_lines: bool = False
    """It ended while its disk took nothing."""
    saves_a_result: bool = False
    """It fails if its disk takes nothing at its end."""
    checksum: str = ""
    """Of its record and journal since it was first seen ended."""

    def lines(self, word: str) -> list[int]:
        try:
            text = self.truth.read_text()
        except FileNotFoundError:
            return []
        return [int(line.split()[1]) for line in text.splitlines() if line.startswith(word)]

    @property
    def pids(self) -> list[int]:
        return self.lines("pid")

    @property
    def reported(self) -> list[int]:
        return self.lines("step")


class User:
    def __init__(self, name: str, uid: int, *, seed: str) -> None:
        self.name, self.uid = name, uid
        self.random = random.Random(f"{seed}-{name}")
        self.home = BASE / name
        self.data = self.home / "disk" / "data"
        self.work = self.home / "work"
        self.truth = BASE / "truth" / name
        self.runs: dict[str, Expected] = {}
        self.ids: dict[str, str] = {}
        """Run ids by mark, as of the last check."""
        self.broken: list[str] = []
        self.counts: dict[str, int] = {}
        self.doing = ""
        self.env = {
            "HOME": str(self.home),
            "USER": name,
            "LOGNAME": name,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "LLMOPS_HOME": str(self.data),
            "LLMOPS_CACHE": str(self.home / "cache"),
            "KUBECONFIG": str(self.home / "kubeconfig"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
        }

    def make(self) -> None:
        tmpfs(self.home, size="1g", mode=0o700, uid=self.uid)
        tmpfs(self.home / "disk", size=str(DISK_BYTES), mode=0o700, uid=self.uid)
        templates = self.work / "cluster_templates"
        # No run here uses ZeRO: with this file no head starts a compiler for minutes.
        compiled = own_ops_folder(self.home / "cache") / "soak_shm_comm"
        for folder in (templates, compiled, self.truth):
            folder.mkdir(parents=True)
        (compiled / "unused.so").touch()
        (templates / "local.yaml").write_text(_TEMPLATE)
        (self.work / "steps.py").write_text(STEPS)
        write_rows(self.work, count=32)
        self.truth.chmod(0o700)
        self.own(self.home, self.truth)

    def own(self, *folders: Path) -> None:
        for root in folders:
            for path in (root, *root.rglob("*")):
                os.chown(path, self.uid, self.uid)

    def broke(self, text: str) -> None:
        self.broken.append(f"{self.name}, {self.doing or 'check'}: {text}")
        print(f"BROKEN {self.broken[-1]}", flush=True)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            user=self.uid, group=self.uid, extra_groups=[], env=self.env, cwd=self.work,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip

    def llmops(
        self, *words: str, may_fail: bool = False, seconds: float = _SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end. It may fail only where that is expected, and in words."""
        process = self.start("llmops_kernel", *words)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.broke(f"`llmops {' '.join(words[:3])}` did not end within {seconds:.0f} s")
        done = subprocess.CompletedProcess(words, process.returncode, out, err)
        said = (
            f"`llmops {' '.join(words[:3])}` exited with {done.returncode}: {(err or out)[-600:]}"
        )
        if "Traceback (most recent call last)" in err or (done.returncode and not may_fail):
            self.broke(said)
        return done

    def submit(self, *, steps: int, pause_s: float, mark: str, **fields: object) -> list[str]:
        """Note the run that will be, and return the words that submit it."""
        run = Expected(mark, self.truth / mark, steps)
        for key, value in fields.items():
            setattr(run, key, value)
        self.runs[mark] = run
        return [
            *("submit", str(self.work / "steps.py"), "--"),
            *("--steps", str(steps), "--pause", str(pause_s), "--truth", str(run.truth)),
        ]

    def new_mark(self) -> str:
        return f"run-{len(self.runs) + 1}"

    def until(self, condition: Callable[[], object], seconds: float = 120.0) -> bool:
        deadline_s = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.1)
        return True

    def used_bytes(self) -> int:
        return shutil.disk_usage(self.home / "disk").used
