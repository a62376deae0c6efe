"""A method prepares the model on the workers, by the function that its file names."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch

from llmops_kernel.config.models.methods import METHODS, MethodConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.load import count_parameters, load_model
from tests.configs import training_config_from_dict


class BiasOnly(MethodConfig):
    variant_name = "bias"
    summary = "trains only the biases"
    apply = f"{__name__}:freeze_weights"

    type: Literal["bias"] = "bias"


def freeze_weights(model: Any, _config: TrainingConfig) -> Any:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.endswith("bias")
    return model


@pytest.fixture
def bias_method() -> Iterator[None]:
    METHODS.add(BiasOnly)
    yield
    METHODS.remove(BiasOnly)


@pytest.mark.usefixtures("bias_method")
@pytest.mark.parametrize(("method", "trainable"), [("bias", 3), ("full", 15)])
def test_the_method_says_what_is_trained(method: str, trainable: int) -> None:
    config = training_config_from_dict({"model": "mine", "data": "x", "method": method})
    hooks = Hooks(build_model=lambda _config: torch.nn.Linear(4, 3))
    counted = count_parameters(load_model("mine", config, hooks))
    assert (counted.total, counted.trainable) == (15, trainable)
