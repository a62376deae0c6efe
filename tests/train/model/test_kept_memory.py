"""A host at its limit: the pages of a kept model are given up before a process is killed."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT = 1200 * 2**20
_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")
_JOB = """
import os, sys
from pathlib import Path
group, cache = Path(sys.argv[1]), Path(sys.argv[2])
(group / "cgroup.procs").write_text(str(os.getpid()))  # Before any page is charged to another.
import torch
from llmops_kernel.store.kept_models import KeptModel, KeptModels

def cached():
    facts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int(facts.get("total_cache", facts.get("file", 0))) // 2**20

def rss():
    [line] = [one for one in open("/proc/self/status") if one.startswith("RssAnon")]
    return int(line.split()[1]) * 1024

store = KeptModels(cache, limit_bytes=2**40)
about = KeptModel(model="m", dtype="float32", user="", num_bytes=512 * 2**20)
model = torch.nn.Linear(2**14, 2**13, bias=False)
store.add("a", "s", about, lambda path: torch.save(model, path))
expected = float(model.weight[-1].sum())
os.sync()
del model
mapped = torch.load(store.find("a", "s"), mmap=True, weights_only=False)
float(mapped.weight.sum())
print("with the model", cached())
own = bytearray(int(sys.argv[3]) - rss() - 60 * 2**20)  # Anonymous memory, every page written.
own[::4096] = b"x" * len(own[::4096])
print("at the limit", cached())
assert float(mapped.weight[-1].sum()) == expected  # Read from the disk again.
print("alive")
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a limit of memory."""
    root, name = (_V1, "memory.limit_in_bytes") if _V1.is_dir() else (_V2, "memory.max")
    folder = root / f"llmops-test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
        (folder / name).write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"no control group with a limit of memory can be made: {error.strerror}")
    yield folder
    folder.rmdir()


@pytest.mark.slow
def test_kept_pages_go_before_a_process_is_killed(group: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _JOB, str(group), str(tmp_path), str(LIMIT)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr[-2000:]}"
    lines = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    assert [words for words, *_ in lines] == ["with the model", "at the limit", "alive"]
    assert int(lines[0][1]) > 450
    assert int(lines[1][1]) < 150
