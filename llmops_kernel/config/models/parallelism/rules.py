"""Rules of strategies and methods: what cannot work together, and the nearest thing that can."""

from __future__ import annotations

from collections.abc import Iterator

from llmops_kernel.config.models.parallelism import Zero3Strategy, ZeroStrategy
from llmops_kernel.config.models.section import Broken
from llmops_kernel.config.models.train_fields import TrainingFields


def offload(config: TrainingFields) -> Iterator[Broken]:
    parallelism = config.parallelism
    strategy = parallelism.strategy
    if parallelism.offload_params and strategy not in ("zero3", "fsdp"):
        yield Broken(
            "parallelism.offload_params",
            f"only ZeRO-3 and FSDP can keep weights in host memory, not {strategy}",
            "set parallelism.strategy=zero3, or offload_params=false",
            ("parallelism.strategy",),
        )
    if parallelism.offload_optimizer and strategy == "ddp":
        yield Broken(
            "parallelism.offload_optimizer",
            "only ZeRO can keep optimizer states in host memory, not ddp",
            "set parallelism.strategy=zero2, or offload_optimizer=false",
            ("parallelism.strategy",),
        )
    if parallelism.offload_optimizer and strategy == "fsdp":
        yield Broken(
            "parallelism.offload_optimizer",
            "FSDP keeps optimizer states where the weights are",
            "set parallelism.offload_params=true, which moves both, or strategy=zero2",
            ("parallelism.strategy",),
        )
    if parallelism.offload_optimizer == "nvme" and isinstance(parallelism, ZeroStrategy):
        yield from _nvme(parallelism)


def _nvme(parallelism: ZeroStrategy) -> Iterator[Broken]:
    if not isinstance(parallelism, Zero3Strategy):
        yield Broken(
            "parallelism.offload_optimizer",
            f"only ZeRO-3 can keep optimizer states on an NVMe disk, not {parallelism.strategy}",
            "set parallelism.strategy=zero3, or offload_optimizer=cpu",
            ("parallelism.strategy",),
        )
    elif parallelism.nvme_path is None:
        yield Broken(
            "parallelism.nvme_path",
            "is needed for offload_optimizer=nvme",
            "set it to a folder on a local disk that each node has, or offload_optimizer=cpu",
            ("parallelism.offload_optimizer",),
        )
    elif parallelism.use_gpu is False:
        yield Broken(
            "parallelism.offload_optimizer",
            "an NVMe disk takes over from host memory, which workers without a GPU compute in",
            "set offload_optimizer=cpu",
            ("parallelism.use_gpu",),
        )


def workers(config: TrainingFields) -> Iterator[Broken]:
    parallelism = config.parallelism
    if parallelism.strategy == "fsdp" and parallelism.num_workers == 1:
        yield Broken(
            "parallelism.strategy",
            "fsdp shards over several workers, and there is one",
            "set parallelism.num_workers=2, or strategy=ddp",
            ("parallelism.num_workers",),
        )


def quantised(config: TrainingFields) -> Iterator[Broken]:
    """4-bit weights are packed bytes with scales beside them: a shard of them means nothing."""
    if config.method.type != "qlora":
        return
    parallelism = config.parallelism
    if "weights" in parallelism.sharded:
        yield Broken(
            "parallelism.strategy",
            f"{parallelism.strategy} shards the weights, and the 4-bit weights of qlora cannot be"
            " sharded here",
            "set parallelism.strategy=zero2, which shards all that qlora trains, or"
            " method.type=lora",
            ("method.type",),
        )
    if config.output.merge_adapter:
        yield Broken(
            "output.merge_adapter",
            "merging into 4-bit weights would round the adapter to 4 bits",
            "set merge_adapter=false; `llmops export` merges into the weights of the base model",
            ("method.type",),
        )


def merging(config: TrainingFields) -> Iterator[Broken]:
    is_sharded = "weights" in config.parallelism.sharded
    if config.output.merge_adapter and is_sharded and config.method.type == "lora":
        yield Broken(
            "output.merge_adapter",
            f"no worker has whole weights to merge into under {config.parallelism.strategy}",
            "set merge_adapter=false; `llmops export` merges afterwards",
            ("parallelism.strategy",),
        )
