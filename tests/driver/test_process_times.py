"""Births of processes, to a hundredth of a second."""

from __future__ import annotations

import os
import subprocess
import time

import psutil
import pytest

from llmops_kernel.driver.nodes import born_s, driver_times
from llmops_kernel.warm.launcher import DRIVER_ENV_VAR


def test_a_new_process_was_born_now() -> None:
    before_s = time.time()
    process = subprocess.Popen(["sleep", "5"])
    after_s = time.time()
    try:
        # The kernel counts in ticks of 10 ms and cuts off.
        assert before_s - 0.02 <= born_s(process.pid) <= after_s + 0.01
    finally:
        process.kill()
        process.wait()


def test_psutil_says_the_same_to_the_second() -> None:
    assert born_s(os.getpid()) == pytest.approx(psutil.Process().create_time(), abs=1.1)


def test_no_process_is_an_error() -> None:
    with pytest.raises(OSError, match="No such"):
        born_s(2**22 + 1)


def test_a_forked_driver_is_as_old_as_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = subprocess.Popen(["sleep", "5"])
    try:
        monkeypatch.setenv(DRIVER_ENV_VAR, str(launcher.pid))
        own_s, supervisor_s = driver_times()
        assert own_s == pytest.approx(born_s(launcher.pid), abs=0.005)
        assert supervisor_s is None
    finally:
        launcher.kill()
        launcher.wait()


def test_the_supervisor_above_a_driver_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "sleep 5 & echo $!; wait # JobSupervisor"
    supervisor = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    driver = int(supervisor.stdout.readline())
    try:
        monkeypatch.setenv(DRIVER_ENV_VAR, str(driver))
        assert driver_times()[1] == pytest.approx(born_s(supervisor.pid), abs=0.005)
    finally:
        psutil.Process(driver).kill()
        supervisor.wait()
        supervisor.stdout.close()
