"""Process groups of a script's workers live as long as their process."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIVES = """
import gc, sys, weakref
import torch.distributed as dist
from torch.distributed import distributed_c10d
from llmops_kernel.train.script import meeting

if sys.argv[1] == "kept":
    meeting.keep_groups()
for destroy in (dist.destroy_process_group, distributed_c10d.destroy_process_group):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    groups = [weakref.ref(dist.group.WORLD), weakref.ref(dist.new_group([0]))]
    destroy()
    gc.collect()
    assert not dist.is_initialized()
    print(*(group() is not None for group in groups))
"""


@pytest.mark.parametrize(("how", "lives"), [("kept", "True"), ("plain", "False")])
def test_a_destroyed_group_is_freed_with_its_process(how: str, lives: str) -> None:
    command = [sys.executable, "-c", LIVES, how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stdout.splitlines() == [f"{lives} {lives}"] * 2, ended.stderr


def test_torch_is_not_imported_for_it() -> None:
    code = "import sys\nfrom llmops_kernel.train.script import meeting\nmeeting.keep_groups()\n"
    code += "print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "False", ended.stderr
