"""Print all runs of the user who runs it as JSON: states, steps, numbers of journal lines."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import llmops_kernel as llmops
from llmops_kernel.store.journal.journal import Deduplicator, numbered_lines
from llmops_kernel.store.paths import runs_root


def mark_of(run: llmops.Run) -> str:
    words = [str(word) for word in run.record.config.get("args") or ()]
    if "--truth" in words:
        return Path(words[words.index("--truth") + 1]).name
    return str(run.record.config.get("name") or run.id)


def report(run: llmops.Run) -> dict[str, Any]:
    state = run.state
    seen = Deduplicator()
    events = run.events()
    seen.new(events)
    folder = run.folder
    doubled, unread = [], 0
    for file in sorted(folder.journal.glob("*.jsonl")):
        data = file.read_bytes()
        numbers = Counter(seq for seq, _ in numbered_lines(data))
        doubled += [f"{file.name}:{seq}" for seq, times in numbers.items() if times > 1]
        unread += len([line for line in data.split(b"\n")[:-1] if line]) - numbers.total()
    return {
        "id": run.id,
        "mark": mark_of(run),
        "state": state,
        "message": run.view.message,
        "steps": [event.step for event in events if event.kind == "step"],
        "lines": len(events),
        "gaps": seen.gaps(),
        "doubled": doubled,
        "unread": unread,
        "checksum": checksum(folder.record, *sorted(folder.journal.glob("*.jsonl"))),
    }


def checksum(*files: Path) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def main() -> int:
    seconds = float(sys.argv[1])
    deadline_s = time.monotonic() + seconds
    runs = list(llmops.runs(limit=None))
    # The same objects: after seconds of silence they ask the cluster whether the run still runs.
    while not all(run.has_ended for run in runs) and time.monotonic() < deadline_s:
        time.sleep(0.5)
    folders = sorted(path.name for path in runs_root().iterdir()) if runs_root().exists() else []
    print(json.dumps({"runs": [report(run) for run in runs], "folders": folders}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
