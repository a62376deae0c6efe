"""FSDP on the workers: Transformers' settings from the config, and what PyTorch made of them."""

from __future__ import annotations

from typing import Any

from llmops_kernel.config.models.parallelism import FsdpStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.parallelism.ddp import trained as trained
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


def describe_engine(trainer: Any) -> str:
    name = type(wrapped(trainer)).__name__
    if not _is_fsdp(trainer):
        return name
    return f"{name}, FSDP2{', weights on cpu' if _on_gpu(trainer) and not _near(trainer) else ''}"


def engine_problem(trainer: Any, config: TrainingConfig) -> str:
    if not _is_fsdp(trainer):
        name = type(wrapped(trainer)).__name__
        return f"fsdp was asked for, and {name} would train with all weights on each worker"
    from torch.distributed.tensor import DTensor

    parameters = wrapped(trainer).named_parameters()
    unsharded = [name for name, parameter in parameters if not isinstance(parameter, DTensor)]
    if unsharded:
        return f"fsdp was asked for, and {unsharded[0]} is not sharded"
    return _offload_problem(trainer, config)


def _offload_problem(trainer: Any, config: TrainingConfig) -> str:
    """Compare where the weights are with where they were to be; on CPUs there is one place."""
    if not _on_gpu(trainer):
        return ""
    is_configured = bool(arguments(config, use_gpu=True)["fsdp_config"].get("cpu_offload"))
    near = _near(trainer)
    if is_configured and near:
        return f"offload_params was asked for, and {near[0]} is on the GPU"
    if not is_configured and not near:
        return "offload_params was not asked for, and all weights are in host memory"
    return ""


def _near(trainer: Any) -> list[str]:
    """Return the weights that are on the device itself."""
    parameters = wrapped(trainer).named_parameters()
    return [name for name, parameter in parameters if parameter.device.type != "cpu"]


def _on_gpu(trainer: Any) -> bool:
    return bool(trainer.args.device.type != "cpu")


def _is_fsdp(trainer: Any) -> bool:
    from torch.distributed.fsdp import FSDPModule

    return isinstance(wrapped(trainer), FSDPModule)


def prepare_save(trainer: Any) -> None:
    """Let the Trainer save whole weights, also where `fsdp_config` has sharded checkpoints."""
    plugin = trainer.accelerator.state.fsdp_plugin
    if "FULL_STATE_DICT" not in str(plugin.state_dict_type):
        plugin.set_state_dict_type("FULL_STATE_DICT")
