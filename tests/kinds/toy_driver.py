"""The driver of a toy run: counts the words of each document. Runs on the cluster."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from llmops_kernel.driver.report import DriverReport
from llmops_kernel.driver.storage import ray_logs, run_folder
from llmops_kernel.metrics.events import EndEvent, OutputEvent, ProgressEvent
from llmops_kernel.store.record import RunSpec


def main() -> int:
    spec = RunSpec.of_this_job()
    report = DriverReport(spec, logs=ray_logs(Path.cwd()))
    report.phases_so_far()
    report.phase("driver", "end")
    report.phase("open_index", "begin")
    documents = sorted(Path(spec.config["folder"]).glob(f"*{spec.config['suffix']}"))
    index = {}
    report.phase("open_index", "end")
    begun_s = time.monotonic()
    for number, path in enumerate(documents, start=1):
        index[path.name] = len(path.read_text().split())
        time.sleep(spec.config["pause_s"])
        rate = number / max(time.monotonic() - begun_s, 1e-9)
        values = {"documents_per_second": rate, "misses": 0.0}
        report.emit(
            ProgressEvent(done=number, total=len(documents), unit="documents", values=values)
        )
    output = run_folder(spec).output
    output.mkdir(parents=True, exist_ok=True)
    (output / "index.json").write_text(json.dumps(index))
    report.emit(OutputEvent(path=str(output), what="index"))
    return report.end(EndEvent(state="SUCCEEDED"))


if __name__ == "__main__":
    sys.exit(main())
