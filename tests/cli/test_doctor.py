"""`llmops doctor`: its JSON, and the trial run for real."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.services.doctor_checks import all_checks
from llmops_kernel.services.doctor_trial import CLUSTER
from tests.cli.conftest import Llmops, process
from tests.providers.conftest import all_listening


def test_json_is_for_machines(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    code = llmops("doctor", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] == (code == 0)
    assert report["run"] is None
    assert {check["level"] for check in report["checks"]} <= {"ok", "warn", "fail"}
    assert len(report["checks"]) == len(all_checks())


def _listening_below(temp: Path) -> set[tuple[str, int]]:
    """Every address and port on which the trial's cluster and its run listen now."""
    records = [cluster_folder(home, CLUSTER).read() for home in temp.glob("llmops-doctor-*")]
    return {pair for record in records if record for pair in all_listening(record)}


@pytest.mark.ray
@pytest.mark.slow
def test_the_trial_trains_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = {p.pid for p in psutil.process_iter()}
    temp = tmp_path / "t"
    temp.mkdir()
    began_s = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        words = ("doctor", "--run", "--json", "--timeout", "400")
        trial = pool.submit(process, *words, TMPDIR=str(temp))
        listening: set[tuple[str, int]] = set()
        while not trial.done():
            listening |= _listening_below(temp)
            time.sleep(0.5)
    done = trial.result()
    took_s = time.monotonic() - began_s
    report = json.loads(done.stdout)
    assert report["run"]["ok"], report["run"]
    assert done.returncode == (0 if report["ok"] else 1)
    # Three minutes on two quiet cores; a machine that is busy with other things may take longer.
    assert took_s < 180 or os.getloadavg()[2] > 3
    assert report["run"]["summary"]["phases"]
    assert len(listening) > 8, "Ray itself listens on that many ports"
    assert {address.removeprefix("::ffff:") for address, _ in listening} == {"127.0.0.1"}
    assert [path for path in temp.iterdir() if path.name.startswith("llmops-doctor")] == []
    assert [
        p.info["cmdline"]
        for p in psutil.process_iter(["cmdline"])
        if p.pid not in before and "llmops-doctor" in " ".join(p.info["cmdline"] or ())
    ] == []
