"""Free memory as the kernel's files have it, for both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.hardware.load import memory


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        (
            "sys/fs/cgroup",
            {"memory.max": "1000", "memory.current": "700", "memory.stat": "file 300\nshmem 100\n"},
        ),
        (
            "sys/fs/cgroup/memory",
            {
                "memory.limit_in_bytes": "1000",
                "memory.usage_in_bytes": "700",
                "memory.stat": "cache 1\ntotal_cache 300\ntotal_shmem 100\n",
            },
        ),
    ],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, folder: str, files: dict[str, str]
) -> None:
    (tmp_path / "proc").mkdir()
    text = "MemTotal: 64 kB\nMemFree: 3 kB\nMemAvailable: 32 kB\nHugePages_Total: 0\n"
    (tmp_path / "proc/meminfo").write_text(text)
    assert list(memory(tmp_path)) == [(32768, 65536)]
    (tmp_path / folder).mkdir(parents=True)
    for name, value in files.items():
        (tmp_path / folder / name).write_text(value)
    # Files in memory can be dropped, shared memory cannot: 700 - 300 + 100 are used.
    assert list(memory(tmp_path)) == [(32768, 65536), (500, 1000)]


def test_without_a_limit_only_the_machine_counts(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert list(memory(tmp_path)) == []
