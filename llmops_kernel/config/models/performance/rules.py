"""What attention kernels and the section `performance` cannot be combined with."""

from __future__ import annotations

from collections.abc import Iterator

from llmops_kernel.config.models.section import Broken
from llmops_kernel.config.models.train_fields import TrainingFields


def attention(config: TrainingFields) -> Iterator[Broken]:
    model = config.model
    if not model.attention.startswith("flash"):
        return
    if model.dtype not in ("bfloat16", "auto"):
        yield Broken(
            "model.attention",
            f"{model.attention} computes in bfloat16 only, and model.dtype is {model.dtype}",
            "set model.dtype=bfloat16, or attention=sdpa",
            ("model.dtype",),
        )
    if config.parallelism.use_gpu is False:
        yield Broken(
            "model.attention",
            f"{model.attention} needs a GPU, and parallelism.use_gpu is false",
            "set attention=sdpa",
            ("parallelism.use_gpu",),
        )


def performance(config: TrainingFields) -> Iterator[Broken]:
    wanted, without_gpu = config.performance, config.parallelism.use_gpu is False
    for name, what in (("fused_loss", "Liger's fused loss"), ("tf32", "TF32")):
        if getattr(wanted, name) and without_gpu:
            yield Broken(
                f"performance.{name}",
                f"{what} needs a GPU, and parallelism.use_gpu is false",
                f"set performance.{name}=false",
                ("parallelism.use_gpu",),
            )
    if wanted.padding_free and config.data.packing:
        yield Broken(
            "performance.padding_free",
            "packed sequences have hardly any padding, and are trained as they are",
            "set performance.padding_free=false, or data.packing=false",
            ("data.packing",),
        )
