"""DeepSpeed's operations are compiled once, also after a compilation was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmops_kernel.config.load import training_config_from_dict
from llmops_kernel.train.ops import needed

COMPILE = (
    "import sys, pathlib\n"
    "from llmops_kernel.train.ops import compile_ops\n"
    "compile_ops(('ShareMemCommBuilder',), root=pathlib.Path(sys.argv[1]))"
)


@pytest.mark.parametrize(
    ("parallelism", "use_gpu", "count"),
    [
        ({"strategy": "ddp"}, False, 0),
        ({"strategy": "zero2"}, False, 1),
        ({"strategy": "zero2"}, True, 0),
        ({"strategy": "zero3", "offload_optimizer": True}, False, 2),
    ],
)
def test_only_what_the_training_will_ask_for(parallelism, use_gpu: bool, count: int) -> None:
    data = {"model": "tiny-llama", "data": "rows.jsonl", "parallelism": parallelism}
    assert len(needed(training_config_from_dict(data), use_gpu=use_gpu)) == count


def _start(folder: Path) -> subprocess.Popen[bytes]:
    # A session of its own: the compiler dies with its parent, as on a cluster that is stopped.
    env = {key: value for key, value in os.environ.items() if key != "TORCH_EXTENSIONS_DIR"}
    command = [sys.executable, "-c", COMPILE, str(folder)]
    return subprocess.Popen(command, start_new_session=True, env=env)


@pytest.mark.slow
def test_a_killed_compilation_does_not_block_the_next(tmp_path: Path) -> None:
    first = _start(tmp_path)
    deadline_s = time.monotonic() + 120
    while not list(tmp_path.glob("*/lock")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert list(tmp_path.glob("*/lock"))
    assert not list(tmp_path.glob("*/*.so"))
    assert _start(tmp_path).wait(timeout=500) == 0
    assert list(tmp_path.glob("*/*.so"))
    assert not list(tmp_path.glob("*/lock"))
