"""Model FLOPs utilization (PaLM, appendix B: arxiv.org/abs/2204.02311)."""

from __future__ import annotations

REJECTED_PEAK = "unknown: a step was faster than the peak"
"""Source of a peak that the run itself proved wrong; no MFU of that run is shown."""


def mfu(
    *, flops: float | None, time_s: float, peak_flops: float | None, num_workers: int = 1
) -> float | None:
    """Required FLOPs over what the hardware could have done in that time; 1 is the peak.

    `flops`: of all workers together (`metrics.flops`). `time_s`: wall clock, with waiting
    for data. `peak_flops`: dense FLOP per second of one worker's device at the compute
    dtype. None when the FLOPs, the peak or the time are unknown. A value above 1 proves that the
    peak is wrong (float32 work done in TF32, a peak measured on a busy CPU): see `possible`.
    """
    if flops is None or peak_flops is None:
        return None
    available = peak_flops * time_s * num_workers
    return flops / available if available > 0 else None


def possible(mfu: float | None) -> float | None:
    """Return an MFU that can be true, or None: nothing computes faster than its peak."""
    return mfu if mfu is not None and 0.0 <= mfu <= 1.0 else None


def flops_per_second(*, flops: float | None, time_s: float) -> float | None:
    """What is shown where the peak is unknown: the rate reached, all workers together."""
    return flops / time_s if flops is not None and time_s > 0 else None
