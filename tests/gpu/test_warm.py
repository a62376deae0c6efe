"""The fork server on a machine with a GPU: its libraries count GPUs, and its children use them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.gpu.trained import GPUS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]
PROGRAM = """
import json, os
from llmops_kernel.warm.preload import DEFAULT_MODULES, preload, unsafe
found = preload([name for name in DEFAULT_MODULES if name != "ray"])["problem"]
reading, writing = os.pipe()
if os.fork() == 0:
    import torch
    total = torch.arange(10.0, device="cuda").sum().item()
    os.write(writing, json.dumps([total, unsafe()]).encode())
    os._exit(0)
os.close(writing)
with os.fdopen(reading) as answer:
    print(json.dumps([found, *json.loads(answer.read())]))
"""


def test_a_process_forked_after_the_imports_computes_on_the_gpu() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )
    before, total, after = json.loads(done.stdout.splitlines()[-1])
    assert (before, total) == ("", 45.0)
    assert after == "an imported module initialised CUDA"
