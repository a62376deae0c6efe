"""GPUs by a reader of the test's own, the host against the kernel's files, energy by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from llmops_kernel.driver.beats import (
    BeatWriter,
    Member,
    beats_folder,
    born_ticks,
    claim_beats,
    remove_beats,
)
from llmops_kernel.driver.system import (
    Energy,
    GpuReading,
    NodeSampler,
    Nvml,
    gpu_of,
    leftovers,
    throttle_words,
)

H200 = GpuReading(
    uuid="GPU-8f2a",
    index=0,
    name="NVIDIA H200",
    utilization=0.93,
    memory_bytes=90 * 2**30,
    memory_total_bytes=141 * 2**30,
    temperature_c=61.0,
    power_w=600.0,
    sm_clock_hz=1.98e9,
    throttled=("power cap",),
)
OTHER = replace(H200, uuid="GPU-77", index=1, power_w=100.0, throttled=())


class Gpus:
    """A reader whose GPUs the test sets."""

    def __init__(self, *readings: GpuReading) -> None:
        self.readings: Sequence[GpuReading] = readings

    def read(self) -> list[GpuReading]:
        return list(self.readings)


def test_without_a_driver_nvml_has_no_gpu_and_says_why() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    reader = Nvml()
    assert reader.read() == []
    assert reader.reason
    assert reader.read() == []


def test_without_the_package_nvml_has_no_gpu() -> None:
    reader = Nvml("no_such_module_of_nvml")
    assert reader.read() == []
    assert "nvidia-ml-py" in reader.reason


def test_a_worker_has_the_numbers_of_its_own_gpu(tmp_path: Path) -> None:
    gpus = Gpus(H200, OTHER)
    clock = iter([0.0, 10.0])
    sampler = NodeSampler("r", 1, gpus=gpus, folder=str(tmp_path), clock=lambda: next(clock))
    member = Member(4, os.getpid(), ("1",))
    first = sampler.sample([member])
    gpus.readings = (H200, replace(OTHER, power_w=300.0))
    second = sampler.sample([member])
    [worker] = second.workers
    assert (worker.rank, worker.gpu, worker.power_w, worker.throttled) == (
        4,
        "NVIDIA H200",
        300.0,
        (),
    )
    # The trapezoidal rule over 10 s; the GPU that no worker has does not count.
    assert first.energy_j is None
    assert second.energy_j == pytest.approx((100 + 300) / 2 * 10)


def test_without_a_gpu_all_of_one_is_unknown(tmp_path: Path) -> None:
    sample = NodeSampler("r", 1, gpus=Gpus(), folder=str(tmp_path)).sample([Member(0, os.getpid())])
    [worker] = sample.workers
    assert worker.gpu == ""
    names = ("gpu_utilization", "gpu_memory_bytes", "temperature_c", "power_w", "sm_clock_hz")
    assert {getattr(worker, name) for name in names} == {None}
    assert worker.throttled is None
    assert sample.energy_j is None


def test_energy_is_the_counters_where_there_is_one() -> None:
    energy = Energy()
    energy.add(0.0, [replace(H200, energy_j=1000.0)])
    energy.add(5.0, [replace(H200, energy_j=4500.0, power_w=1e9)])
    assert energy.joules == 3500.0
    energy.add(6.0, [replace(H200, energy_j=10.0, power_w=600.0)])  # The driver was loaded again.
    assert energy.joules == pytest.approx(3500.0 + (1e9 + 600.0) / 2)
    unknown = Energy()
    for now_s in (0.0, 5.0):
        unknown.add(now_s, [replace(H200, power_w=None)])
    assert unknown.joules is None


def test_a_gpu_is_known_by_its_name_else_by_the_process_on_it() -> None:
    readings = [H200, replace(OTHER, pids=(77,))]
    assert gpu_of(readings, 1, ("GPU-8f2a",)) is H200
    assert gpu_of(readings, 77, ("",)) is readings[1]
    assert gpu_of(readings, 5, ("",)) is None
    assert gpu_of(readings, 77, ("MIG-1",)) is readings[1]


def test_bits_of_nvml_as_words() -> None:
    assert throttle_words(0x1 | 0x2) == ()  # Idle, and clocks that somebody has set.
    assert throttle_words(0x4 | 0x40) == ("power cap", "temperature (hardware)")


def test_the_host_is_as_the_kernel_says(tmp_path: Path) -> None:
    sampler = NodeSampler("r", 1, gpus=Gpus(), folder=str(tmp_path / "not" / "there"))
    first = sampler.sample().host
    assert (first.cpu, first.disk_read_bytes_per_second) == (None, None)  # Since when?
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < 0.3:
        pass
    host = sampler.sample().host
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total = int(meminfo["MemTotal"].split()[0]) * 1024
    assert host.memory_total_bytes is not None
    assert host.memory_total_bytes <= total
    assert host.cpu is not None
    assert 1 / (2 * (os.cpu_count() or 1)) < host.cpu <= 1.0
    disk = os.statvfs(tmp_path)
    assert host.disk_total_bytes == disk.f_blocks * disk.f_frsize
    assert host.host == os.uname().nodename


def test_a_process_that_computes_uses_a_core(tmp_path: Path) -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        sampler = NodeSampler("r", 1, gpus=Gpus(), folder=str(tmp_path))
        member = [Member(0, busy.pid)]
        assert sampler.sample(member).workers[0].cpu is None
        before = psutil.Process(busy.pid).cpu_times().user
        begin_s = time.monotonic()
        time.sleep(0.6)
        used = sampler.sample(member).workers[0].cpu
        seconds = time.monotonic() - begin_s
        expected = (psutil.Process(busy.pid).cpu_times().user - before) / seconds
        assert used == pytest.approx(expected, abs=0.15)
    finally:
        busy.kill()
        busy.wait()
    assert sampler.sample(member).workers == ()


def test_a_gpu_that_an_ended_process_holds_is_named(tmp_path: Path) -> None:
    proc, beats = tmp_path / "proc", tmp_path / "beats"
    (proc / "2").mkdir(parents=True)
    (proc / "2" / "comm").write_text("kthreadd\n")
    (proc / "50").mkdir()
    held = [replace(H200, pids=(50, 4321)), OTHER]
    [sentence] = leftovers(held, proc=proc, beats=beats)
    assert "GPU 0 (NVIDIA H200)" in sentence
    assert "process 4321, which has ended" in sentence
    # In a container NVML's pids are those of the machine: of them nothing can be said.
    (proc / "2" / "comm").write_text("python\n")
    assert leftovers(held, proc=proc, beats=beats) == []


def test_a_worker_whose_driver_has_ended_is_named_by_its_run(tmp_path: Path) -> None:
    BeatWriter(tmp_path / "lora-1a2b-3", rank=0, world_size=1)
    driver = tmp_path / "lora-1a2b-3" / "driver"
    held = [replace(H200, pids=(os.getpid(),))]
    driver.write_text(f"{os.getpid()} {born_ticks(os.getpid())}")
    assert leftovers(held, beats=tmp_path) == []
    driver.write_text(f"{os.getpid()} {born_ticks(os.getpid()) - 1}")
    [sentence] = leftovers(held, beats=tmp_path)
    assert f"process {os.getpid()} of run lora-1a2b," in sentence


def test_a_driver_claims_its_folder_and_removes_what_a_killed_one_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    claim_beats("claimed", 2)
    folder, left = beats_folder("claimed", 2), beats_folder("killed", 1)
    assert (folder / "driver").read_text().split()[0] == str(os.getpid())
    claim_beats("another", 1)
    left.mkdir()
    (left / "driver").write_text(f"{os.getpid()} 1")
    remove_beats("claimed", 2)
    assert [path.name for path in folder.parent.iterdir()] == ["another-1"]
    remove_beats("another", 1)
    assert list(tmp_path.iterdir()) == []
