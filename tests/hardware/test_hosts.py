from __future__ import annotations

import pytest

from llmops_kernel.hardware.accelerators import HOSTS, HostType, find_host


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_each_host_has_known_accelerators_and_a_source(host: HostType) -> None:
    accelerator = host.accelerator
    assert accelerator is not None
    assert "bfloat16" in accelerator.peak_flops
    assert accelerator.memory_bytes is not None
    assert host.memory_bytes > accelerator.memory_bytes
    assert host.source


def test_the_two_hosts_of_the_published_runs() -> None:
    onprem, gcp = find_host("onprem-4xa100"), find_host("A3-highgpu-8g")
    assert onprem is not None
    assert gcp is not None
    assert (onprem.num_accelerators, onprem.memory_bytes) == (4, 600e9)
    assert (gcp.num_accelerators, gcp.num_cpus, gcp.accelerator_name) == (8, 208, "H100 SXM")
    assert gcp.memory_bytes == 1872 * 2**30


def test_an_unknown_host_is_none() -> None:
    assert find_host("dgx") is None
