"""What a CPU could do at best: measured on an idle machine only, in bounded time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.errors import ConfigError
from llmops_kernel.train.measure import device
from llmops_kernel.train.measure.device import PeakFile, Sample, best_rate, take_samples

TRUE_PEAK = 45e9


@pytest.fixture(autouse=True)
def stated_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """State none: these tests measure it."""
    monkeypatch.delenv(device.PEAK_ENV_VAR, raising=False)


class Machine:
    """A simulated CPU: products take their time by its clock, more of it while it is busy.

    `tick_s`: how often the time of other threads than the reading one is added up.
    """

    def __init__(
        self, *, threads: int = 2, load: Iterator[float] | None = None, tick_s: float = 0.0
    ) -> None:
        self.wall_s = self.cpu_s = self.others_s = 0.0
        self.tick_s, self.last_tick = tick_s, 0
        self.threads = threads
        self.load = load
        self.sizes_used: list[int] = []
        self._warm: set[int] = set()

    def make_product(self, size: int) -> Callable[[], object]:
        def product() -> None:
            computing_s = 2 * size**3 / TRUE_PEAK
            if size not in self._warm:  # Threads start, memory is touched for the first time.
                self._warm.add(size)
                self.wall_s += 0.2
            slower = next(self.load) if self.load is not None else 1.0
            self.sizes_used.append(size)
            self.wall_s += computing_s * slower
            self.cpu_s += computing_s
            self.others_s += computing_s * (self.threads - 1)

        return product

    def read_cpu_s(self) -> float:
        """This thread's time so far, that of the others as of the last tick."""
        tick = int(self.wall_s / self.tick_s) if self.tick_s else self.last_tick + 1
        if tick > self.last_tick:
            self.cpu_s, self.others_s, self.last_tick = self.cpu_s + self.others_s, 0.0, tick
        return self.cpu_s

    def samples(self, budget_s: float = 1.0) -> list[Sample]:
        return take_samples(
            self.make_product, budget_s=budget_s, wall=lambda: self.wall_s, cpu=self.read_cpu_s
        )


def test_a_cold_first_product_is_not_the_peak() -> None:
    assert best_rate(Machine().samples(), threads=2) == pytest.approx(TRUE_PEAK)


@pytest.mark.parametrize("tick_s", [0.0, 0.001, 0.004, 0.01])
@pytest.mark.parametrize("slower", [1.5, 4.0, 300.0])
def test_a_busy_machine_has_no_peak(slower: float, tick_s: float) -> None:
    """A product of 0.7 ms once seemed to have computed for 3.3 s a second, at an eighth of the
    processor's rate: a tick had added what the products before it took.
    """
    busy = Machine(load=itertools.repeat(slower), tick_s=tick_s)
    assert best_rate(busy.samples(), threads=2) is None


@pytest.mark.parametrize("tick_s", [0.0, 0.001, 0.004, 0.01])
def test_a_quiet_machine_has_one_at_any_tick(tick_s: float) -> None:
    assert best_rate(Machine(tick_s=tick_s).samples(), threads=2) == pytest.approx(TRUE_PEAK)


def test_one_quiet_moment_of_a_busy_machine_is_enough() -> None:
    """A moment of a tenth of a second."""
    number = round(0.12 * TRUE_PEAK / (2 * 256**3))
    loads = itertools.chain([300.0] * 3, [1.0] * number, itertools.repeat(300.0))
    assert best_rate(Machine(load=loads).samples(), threads=2) == pytest.approx(TRUE_PEAK)


@given(st.lists(st.floats(1.0, 400.0), min_size=1, max_size=40))
def test_whatever_the_load_the_peak_is_nearly_true_or_unknown(loads: list[float]) -> None:
    measured = best_rate(Machine(load=itertools.cycle(loads)).samples(), threads=2)
    assert measured is None or 0.89 * TRUE_PEAK <= measured <= 1.001 * TRUE_PEAK


def test_a_slow_machine_is_measured_in_bounded_time() -> None:
    slow = Machine(load=itertools.repeat(45.0))  # 1 GFLOPS
    slow.samples()
    assert slow.wall_s < 5
    assert 2048 not in slow.sizes_used


def test_the_peak_of_this_machine_is_kept_when_it_was_idle(tmp_path: Path) -> None:
    begin_s = time.perf_counter()
    found = device.describe(use_gpu=False, dtype="float32", cache_root=tmp_path)
    assert time.perf_counter() - begin_s < 30
    kept = tmp_path / device.FILE
    if found.peak_flops is None:
        assert "other processes" in found.peak_source
        assert not kept.exists()
    else:
        assert found.peak_source.startswith("measured: best of float32")
        assert list(json.loads(kept.read_text()).values()) == [[found.peak_flops, 1]]
        assert device.describe(use_gpu=False, dtype="float32", cache_root=tmp_path) == found


def test_a_later_measurement_raises_the_peak_and_never_lowers_it(tmp_path: Path) -> None:
    file = PeakFile(tmp_path)
    assert file.get("cpu") is None
    assert file.add("cpu", 3e9) == 3e9
    assert file.add("cpu", 45e9) == 45e9
    assert file.add("cpu", 40e9) == 45e9
    assert file.is_settled("cpu")
    assert not file.is_settled("another cpu")


def test_a_peak_that_a_step_exceeded_is_forgotten(tmp_path: Path) -> None:
    PeakFile(tmp_path).add(device.peak_key(device.cpu_name(), "float32"), 1e6)
    device.forget_cpu_peak("float32", tmp_path)
    assert PeakFile(tmp_path).get(device.peak_key(device.cpu_name(), "float32")) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cpu": 135e6}', '{"cpu": ["a", 1]}'])
def test_a_damaged_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    (tmp_path / device.FILE).write_text(content)
    assert PeakFile(tmp_path).get("cpu") is None
    assert PeakFile(tmp_path).add("cpu", 45e9) == 45e9


def test_the_file_of_earlier_versions_is_not_read(tmp_path: Path) -> None:
    """It kept 135 MFLOPS of a 45 GFLOPS processor, and showed MFU 658 %."""
    key = device.peak_key(device.cpu_name(), "float32")
    (tmp_path / "peaks.json").write_text(json.dumps({key: 135e6}))
    assert PeakFile(tmp_path).get(key) is None


def test_no_product_beats_the_measured_peak_by_much(tmp_path: Path) -> None:
    """An independent product of another shape: more than the peak would make an MFU above 1."""
    peak, _ = device.measured_cpu_peak("cpu", "float32", tmp_path)
    if peak is None:
        pytest.skip("other processes are using the CPU")
    left, right = torch.randn(1024, 1536), torch.randn(1536, 1280)
    times = []
    for _ in range(5):
        begin_s = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - begin_s)
    assert 2 * 1024 * 1536 * 1280 / min(times) < 1.6 * peak


def test_a_stated_peak_wins_and_a_wrong_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(device.PEAK_ENV_VAR, "312")
    found = device.describe(use_gpu=False, dtype="bfloat16", cache_root=tmp_path)
    assert found.peak_flops == 312e12
    monkeypatch.setenv(device.PEAK_ENV_VAR, "fast")
    with pytest.raises(ConfigError):
        device.describe(use_gpu=False, dtype="bfloat16", cache_root=tmp_path)


def test_float32_in_tf32_is_measured_against_the_peak_of_tf32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """67 TFLOPS would make an MFU of an H100 seven times too high."""
    assert device.datasheet_peak("NVIDIA H100 80GB HBM3", "float32").peak_flops == 67e12
    found = device.datasheet_peak("NVIDIA H100 80GB HBM3", "tf32")
    assert found.peak_flops == pytest.approx(494.7e12)
    assert found.peak_source.startswith("datasheet, TF32")
    assert device.datasheet_peak("NVIDIA B300 SXM6 AC", "tf32").peak_flops is None
    assert not device.uses_tf32()
    monkeypatch.setattr(torch.backends, "fp32_precision", "tf32")  # As Transformers 5.23 does.
    assert device.uses_tf32()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100-SXM4-80GB")
    assert device.describe(use_gpu=True, dtype="float32").peak_flops == 156e12
    assert device.describe(use_gpu=True, dtype="bfloat16").peak_flops == 312e12


_SIZES = """
import sys
import psutil
import torch
from llmops_kernel.train.measure.device import bound_onednn_caches

if sys.argv[1] == "bounded":
    bound_onednn_caches()
product = torch.ops.mkldnn._linear_pointwise.default
right = torch.randn(4096, 512)
before = None
for rows in range(64, 464):
    product(torch.randn(rows, 512), right, None, "none", [], "")
    if rows == 164:
        before = psutil.Process().memory_info().rss
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch has no oneDNN")
def test_memory_does_not_grow_with_each_length_of_a_batch() -> None:
    grown = {}
    for kind in ("bounded", "unbounded"):
        done = subprocess.run(
            [sys.executable, "-c", _SIZES, kind],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
            env={k: v for k, v in os.environ.items() if not k.endswith("CACHE_CAPACITY")},
        )
        grown[kind] = int(done.stdout) / 2**20
    assert grown["bounded"] < grown["unbounded"] / 4, grown
