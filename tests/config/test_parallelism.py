"""Methods and strategies: fields of the chosen one only, old records, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from llmops_kernel.config.assist.file_kinds import TRAIN, form_schema
from llmops_kernel.config.models.methods import LoraMethod, QloraMethod
from llmops_kernel.config.models.parallelism import FsdpStrategy, Zero2Strategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from tests.configs import training_config_from_dict

DATA = {"model": "tiny-llama", "data": "rows.jsonl"}


def test_a_field_of_another_method_is_refused_from_python_too() -> None:
    with pytest.raises(ValidationError, match=r"full\.r|method\.r"):
        TrainingConfig.model_validate({**DATA, "method": {"type": "full", "r": 16}})
    with pytest.raises(ValidationError, match="fsdp"):
        TrainingConfig.model_validate({**DATA, "parallelism": {"strategy": "ddp", "fsdp": {}}})


def test_a_record_of_an_earlier_release_is_read() -> None:
    every = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear"}
    config = TrainingConfig.model_validate({**DATA, "method": {"type": "full", **every}})
    assert config.method.model_dump() == {"type": "full"}
    parallelism = {"strategy": "zero2", "num_workers": 2, "offload_optimizer": True}
    config = TrainingConfig.model_validate({**DATA, "parallelism": parallelism})
    assert isinstance(config.parallelism, Zero2Strategy)
    assert config.parallelism.offload_optimizer == "cpu"
    assert TrainingConfig.model_validate(config.model_dump(mode="json")) == config


def test_each_method_and_strategy_has_its_own_fields_in_memory_and_in_forms() -> None:
    wanted = {
        "method": {"type": "qlora", "use_rslora": True, "use_dora": True},
        "parallelism": {"strategy": "fsdp", "num_workers": 2, "fsdp": {"version": 2}},
    }
    with pytest.raises(ConfigError, match="4-bit weights of qlora cannot be sharded"):
        training_config_from_dict({**DATA, **wanted})
    config = training_config_from_dict({**DATA, **wanted, "method": {"type": "lora", "r": 4}})
    assert isinstance(config.method, LoraMethod)
    assert isinstance(config.parallelism, FsdpStrategy)
    assert not isinstance(config.method, QloraMethod)
    properties = form_schema(TRAIN)["properties"]
    fields = properties["method"]["properties"]
    assert fields["bnb_4bit_quant_type"]["when"] == {"type": ["qlora"]}
    assert fields["use_dora"]["when"] == {"type": ["lora", "qlora"]}
    fields = properties["parallelism"]["properties"]
    assert fields["strategy"]["enum"] == ["auto", "ddp", "fsdp", "zero1", "zero2", "zero3"]
    assert fields["deepspeed"]["when"] == {"strategy": ["zero1", "zero2", "zero3"]}


TWO = {"num_workers": 2}
NVME: dict[str, Any] = {"strategy": "zero3", "offload_optimizer": "nvme"}


@pytest.mark.parametrize(
    ("config", "path", "reason", "nearest"),
    [
        ({"parallelism": {"strategy": "fsdp"}}, "parallelism.strategy", "there is one",
         "num_workers=2, or strategy=ddp"),
        ({"parallelism": {"strategy": "fsdp", "offload_optimizer": "cpu", **TWO}},
         "parallelism.offload_optimizer", "where the weights are", "offload_params=true"),
        ({"parallelism": {"strategy": "zero1", "offload_params": True}},
         "parallelism.offload_params", "not zero1", "strategy=zero3"),
        ({"parallelism": {"strategy": "zero2", "offload_optimizer": "nvme"}},
         "parallelism.offload_optimizer", "only ZeRO-3", "offload_optimizer=cpu"),
        ({"parallelism": NVME}, "parallelism.nvme_path", "is needed", "a local disk"),
        ({"parallelism": {**NVME, "nvme_path": "/scratch", "use_gpu": False}},
         "parallelism.offload_optimizer", "without a GPU", "offload_optimizer=cpu"),
        ({"parallelism": {"strategy": "zero3"}, "method": "qlora"}, "parallelism.strategy",
         "cannot be sharded", "strategy=zero2"),
        ({"method": "qlora", "output": {"merge_adapter": True}}, "output.merge_adapter",
         "round the adapter", "llmops export"),
        ({"parallelism": {"strategy": "zero3"}, "output": {"merge_adapter": True}},
         "output.merge_adapter", "no worker has whole weights", "llmops export"),
    ],
)  # fmt: skip
def test_what_cannot_work_together_is_refused_with_the_nearest_thing_that_can(
    config: dict[str, Any], path: str, reason: str, nearest: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        training_config_from_dict({**DATA, **config})
    (problem,) = caught.value.problems
    assert problem.path == path
    assert reason in problem.message
    assert nearest in problem.suggestion


@pytest.mark.parametrize(
    ("parallelism", "replaces"),
    [
        ({"strategy": "zero3"}, True),
        ({"strategy": "zero3", "deepspeed": {"zero_optimization": {"overlap_comm": True}}}, True),
        (
            {
                "strategy": "zero3",
                "deepspeed": {"zero_optimization": {"memory_efficient_linear": False}},
            },
            False,
        ),
        ({"strategy": "zero2"}, False),
        ({"strategy": "fsdp"}, False),
    ],
)
def test_only_zero3_has_linear_layers_of_its_own(
    parallelism: dict[str, Any], replaces: bool
) -> None:
    config = TrainingConfig.model_validate({**DATA, "parallelism": {**parallelism, **TWO}})
    assert config.parallelism.replaces_linear is replaces
