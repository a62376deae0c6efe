"""The strategies of parallelism: workers, their resources, and what is kept where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from llmops_kernel.config.models.fields import Choice, Variants
from llmops_kernel.config.models.section import Broken


class ParallelismConfig(Choice):
    """How a training is spread over workers. Each strategy is a subclass."""

    shorthand = "strategy"
    variants: ClassVar[Variants[ParallelismConfig]] = Variants(default="auto")
    worker_side: ClassVar[str] = ""
    """Module on the workers, with the functions of `llmops_kernel/train/parallelism/strategy.py`."""
    sharded: ClassVar[tuple[str, ...]] = ()
    """What each worker has only a share of: `optimizer states`, `gradients`, `weights`."""

    strategy: str = "auto"
    num_workers: int = Field(default=1, ge=1)
    """Ray Train workers: processes, one GPU each where there are GPUs."""
    cpus_per_worker: float | None = Field(default=None, gt=0)
    """CPUs reserved for each worker. Default: one; without GPUs the workers share all CPUs of the machine as threads."""
    use_gpu: bool | Literal["auto"] = "auto"
    """`auto` uses GPUs if the cluster has any."""
    offload_optimizer: bool | Literal["cpu", "nvme"] = False
    """Keep optimizer states in host memory (`cpu`, or `true`; ZeRO only) or on an NVMe disk (`nvme`; ZeRO-3 on GPUs only)."""
    offload_params: bool = False
    """Keep weights in host memory (ZeRO-3 and FSDP only; FSDP keeps gradients and optimizer states there too)."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: needs less memory and about a third more computation."""

    @property
    def replaces_linear(self) -> bool:
        """Return whether linear layers save their input after their product, not before it.

        Activation checkpointing recomputes a layer up to the last tensor that it saves.
        """
        return False

    @field_validator("offload_optimizer")
    @classmethod
    def _true_is_cpu(cls, value: Any) -> Any:
        return "cpu" if value is True else value

    @classmethod
    def resolved(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace `auto` by a strategy, so that a config in memory and its record name one."""
        if data.get("strategy", "auto") != "auto":
            return data
        alone = str(data.get("num_workers", 1)) in ("1", "1.0")
        offloads = data.get("offload_optimizer") or data.get("offload_params")
        return {**data, "strategy": "ddp" if alone and not offloads else "zero2"}


STRATEGIES: Final = ParallelismConfig.variants
"""All strategies by name."""


@STRATEGIES.add
class AutoStrategy(ParallelismConfig):
    variant_name = "auto"
    summary = "is `ddp` for one worker and `zero2` for several or for offloading"

    strategy: Literal["auto"] = "auto"


@STRATEGIES.add
class DdpStrategy(ParallelismConfig):
    variant_name = "ddp"
    summary = "copies everything to each worker"
    worker_side = "llmops_kernel.train.parallelism.ddp"

    strategy: Literal["ddp"] = "ddp"


@STRATEGIES.add
class FsdpStrategy(ParallelismConfig):
    variant_name = "fsdp"
    summary = (
        "shards weights, gradients and optimizer states over the workers, with PyTorch's FSDP2"
    )
    worker_side = "llmops_kernel.train.parallelism.fsdp"
    sharded = ("optimizer states", "gradients", "weights")

    strategy: Literal["fsdp"] = "fsdp"
    fsdp: dict[str, Any] = Field(default_factory=dict)
    """Further settings of Transformers' `fsdp_config`, such as `reshard_after_forward: false`."""


class ZeroStrategy(ParallelismConfig):
    """A stage of ZeRO; each shards what the stages before it do, and one thing more."""

    worker_side = "llmops_kernel.train.parallelism.zero"
    stage: ClassVar[int]

    deepspeed: dict[str, Any] = Field(default_factory=dict)
    """Further settings of DeepSpeed, laid over those that follow from this config, such as `zero_optimization: {overlap_comm: true}`."""


@STRATEGIES.add
class Zero1Strategy(ZeroStrategy):
    variant_name = "zero1"
    summary = "shards optimizer states over the workers, through DeepSpeed"
    stage = 1
    sharded = ("optimizer states",)

    strategy: Literal["zero1"] = "zero1"


@STRATEGIES.add
class Zero2Strategy(ZeroStrategy):
    variant_name = "zero2"
    summary = "shards gradients too"
    stage = 2
    sharded = ("optimizer states", "gradients")

    strategy: Literal["zero2"] = "zero2"


@STRATEGIES.add
class Zero3Strategy(ZeroStrategy):
    variant_name = "zero3"
    summary = "shards weights too"
    stage = 3
    sharded = ("optimizer states", "gradients", "weights")

    strategy: Literal["zero3"] = "zero3"
    nvme_path: str | None = None
    """Folder on a local NVMe disk of each node, for `offload_optimizer: nvme`."""

    @property
    def replaces_linear(self) -> bool:
        """Return whether DeepSpeed puts its LinearFunctionForZeroStage3 in PyTorch's place."""
        zero = self.deepspeed.get("zero_optimization")
        return not isinstance(zero, Mapping) or bool(zero.get("memory_efficient_linear", True))


# --- Rules: where weights and optimizer states can be ---


def placement_rules(parallelism: ParallelismConfig) -> Iterator[Broken]:
    """Yield what a strategy cannot do with its settings."""
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
    if parallelism.strategy == "fsdp" and parallelism.num_workers == 1:
        yield Broken(
            "parallelism.strategy",
            "fsdp shards over several workers, and there is one",
            "set parallelism.num_workers=2, or strategy=ddp",
            ("parallelism.num_workers",),
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
