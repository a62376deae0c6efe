"""Two processes write one stream on a disk that is full, then not: no line is lost or doubled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmops_kernel.store.journal.journal import StreamTail

# Obeys lines: `emit TEXT`, `half`, `close`; answers each with the number of its waiting lines.
WRITER = """
import sys
from pathlib import Path
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.store.journal.journal import JournalWriter
out = JournalWriter([Path(sys.argv[1])], stream="1-client", attempt=1)
print("ready", flush=True)
for line in sys.stdin:
    word, _, text = line.strip().partition(" ")
    out.emit(WarningEvent(message=text)) if word == "emit" else out.close()
    print(out.num_waiting, flush=True)
"""
# The same in a small file system of its own; both writers share it, and `fill` takes its space.
ON_A_SMALL_DISK = """
import os, subprocess, sys
disk, code = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
journal, fill = disk + "/journal", disk + "/fill"
os.mkdir(journal)
words = [sys.executable, "-c", code, journal]
pipe = subprocess.PIPE
writers = [subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) for _ in "ab"]
assert [writer.stdout.readline() for writer in writers] == ["ready\\n"] * 2

def tell(which, line):
    writer = writers["ab".index(which)]
    writer.stdin.write(line + "\\n")
    writer.stdin.flush()
    return int(writer.stdout.readline())

def full():
    with open(fill, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

waiting = []
for number in range(3):
    tell("a", f"emit a-before-{number}")
    tell("b", f"emit b-before-{number}")
full()
long = "x" * 3000  # Longer than what is left of the file's last page: the line is cut.
for number in range(3):
    for who in "ab":
        waiting.append(tell(who, f"emit {who}-full-{number}-{long}"))
os.unlink(fill)
for number in range(2):
    tell("b", f"emit b-after-{number}")
    tell("a", f"emit a-after-{number}")
full()
for number in range(3):
    for who in "ab":
        waiting.append(tell(who, f"emit {who}-again-{number}-{long}"))
os.unlink(fill)
print(tell("a", "close"), tell("b", "close"), max(waiting))
print(open(journal + "/1-client.jsonl").read(), end="")
"""


@pytest.fixture
def unshare(tmp_path: Path) -> list[str]:
    """Run a command with mounts of its own; skips where the system does not allow it."""
    words = ["unshare", "--user", "--map-root-user", "--mount"]
    probe = [*words, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("this system does not allow a mount of one's own")
    return words


def test_two_writers_on_a_full_disk(unshare: list[str], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = [*unshare, sys.executable, "-c", ON_A_SMALL_DISK, str(disk), WRITER]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    left, _, journal = done.stdout.partition("\n")
    waiting_a, waiting_b, most_waiting = map(int, left.split())
    assert (waiting_a, waiting_b) == (0, 0)
    assert most_waiting > 1  # The disk was full indeed.
    copy = tmp_path / "copy.jsonl"
    copy.write_text(journal)
    events = StreamTail(copy).read()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    said = sorted(event.message.partition("-x")[0] for event in events)
    phases = {"before": 3, "full": 3, "after": 2, "again": 3}
    assert said == sorted(
        f"{who}-{phase}-{number}"
        for who in "ab"
        for phase, count in phases.items()
        for number in range(count)
    )
