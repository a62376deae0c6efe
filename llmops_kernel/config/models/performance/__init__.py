"""The section `performance` of a training config, and what it cannot be combined with."""

from __future__ import annotations

from llmops_kernel.config.models.performance.fields import PerformanceConfig

__all__ = ["PerformanceConfig"]
