"""FSDP on the workers: Transformers' settings from the config, and what PyTorch made of them."""

from __future__ import annotations

from typing import Any

from llmops_kernel.config.models.parallelism import FsdpStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.parallelism.strategy import wrapped


def arguments(config: TrainingConfig, *, use_gpu: bool) -> dict[str, Any]:
    parallelism = config.parallelism
    assert isinstance(parallelism, FsdpStrategy)
    settings: dict[str, Any] = {
        "version": 2,
        # Gathered on rank 0: what every other tool can load, with any number of workers.
        "state_dict_type": "FULL_STATE_DICT",
        # On a CPU the weights are in host memory anyway.
        "cpu_offload": parallelism.offload_params and use_gpu,
    }
    # Checkpointing is Transformers' own, as with the other strategies: FSDP's wraps the layers
    # under other names, and PEFT 0.21 then saves an adapter without weights.
    return {"fsdp": True, "fsdp_config": {**settings, **parallelism.fsdp}}


def join(arguments: Any) -> None:
    """Let Accelerate shard on CPUs too.

    Accelerate 1.15 turns FSDP on for the distributed types of accelerators only, and trains with
    plain DDP otherwise, without a warning. PyTorch's FSDP2 itself works over Gloo.
    """
    if arguments.device.type == "cpu":
        from accelerate.state import PartialState
        from accelerate.utils import DistributedType

        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def engine_words(trainer: Any) -> str:
    name = type(wrapped(trainer)).__name__
    return f"{name}, FSDP2" if _is_fsdp(trainer) else name


def engine_problem(trainer: Any, config: TrainingConfig) -> str:
    if not _is_fsdp(trainer):
        name = type(wrapped(trainer)).__name__
        return f"fsdp was asked for, and {name} would train with all weights on each worker"
    from torch.distributed.tensor import DTensor

    parameters = wrapped(trainer).named_parameters()
    whole = [name for name, one in parameters if not isinstance(one, DTensor)]
    return f"fsdp was asked for, and {whole[0]} is not sharded" if whole else ""


def _is_fsdp(trainer: Any) -> bool:
    from torch.distributed.fsdp import FSDPModule

    return isinstance(wrapped(trainer), FSDPModule)


def trained(trainer: Any) -> list[Any]:
    return [one for group in trainer.optimizer.param_groups for one in group["params"]]


def gather_on_save(trainer: Any) -> None:
    """Let the Trainer save whole weights, also where `fsdp_config` has sharded checkpoints."""
    plugin = trainer.accelerator.state.fsdp_plugin
    if "FULL_STATE_DICT" not in str(plugin.state_dict_type):
        plugin.set_state_dict_type("FULL_STATE_DICT")
