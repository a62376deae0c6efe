"""What a CPU could do at best: measured once, in bounded time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from llmops_kernel.errors import ConfigError
from llmops_kernel.train import device


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_peak_is_measured_in_bounded_time_and_kept(tmp_path: Path, dtype: str) -> None:
    begin_s = time.perf_counter()
    found = device.describe(use_gpu=False, dtype=dtype, cache_root=tmp_path)
    assert time.perf_counter() - begin_s < 30
    assert found.peak_source.startswith(f"measured: best of {dtype}")
    assert found.peak_flops is not None
    kept = json.loads((tmp_path / "peaks.json").read_text())
    assert list(kept.values()) == [found.peak_flops]
    assert device.describe(use_gpu=False, dtype=dtype, cache_root=tmp_path) == found


def test_no_product_beats_the_measured_peak_by_much(tmp_path: Path) -> None:
    """An independent product of another shape: more than the peak would make an MFU above 1."""
    peak, _ = device.measured_cpu_peak("cpu", "float32", tmp_path)
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
