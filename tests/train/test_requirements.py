"""A package that a method needs is looked for before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from llmops_kernel.config.models.methods import METHODS, MethodConfig
from llmops_kernel.errors import TrainingError
from llmops_kernel.train.requirements import check_device, check_packages


class RareMethod(MethodConfig):
    variant_name = "rare"
    summary = "needs a package that nobody has"
    apply = "llmops_kernel.train.methods:prepare_full"
    needs = ("a_package_that_nobody_has",)

    type: Literal["rare"] = "rare"


@pytest.fixture
def rare_method() -> Iterator[None]:
    METHODS.add(RareMethod)
    yield
    METHODS.remove(RareMethod)


@pytest.mark.usefixtures("rare_method")
def test_a_missing_package_is_named_with_how_to_install_it(
    make_config: Callable[..., Any],
) -> None:
    check_packages(make_config(method="qlora"))
    with pytest.raises(TrainingError, match="the package a_package_that_nobody_has") as raised:
        check_packages(make_config(method="rare"))
    assert "pip install a_package_that_nobody_has" in raised.value.remedy


@pytest.mark.parametrize(
    ("sections", "package", "extra"),
    [
        ({"model": {"id": "a/b", "attention": "flash_attention_2"}}, "flash-attn", "[kernels]"),
        ({"model": {"id": "a/b", "attention": "flash_attention_3"}}, "flash-attn-3", "hopper"),
        ({"performance": {"fused_loss": True}}, "liger-kernel", "[kernels]"),
    ],
)
def test_kernels_that_are_not_installed_are_named_with_their_extra(
    make_config: Callable[..., Any], sections: dict[str, Any], package: str, extra: str
) -> None:
    """Before, flash attention failed minutes later, when the model was loaded."""
    if "model" in sections:
        sections["model"]["dtype"] = "bfloat16"
    config = make_config(**sections)
    with pytest.raises(TrainingError, match=f"the package {package}, which") as raised:
        check_packages(config)
    assert extra in raised.value.remedy


def test_what_needs_a_gpu_is_refused_on_a_cluster_without_one(
    make_config: Callable[..., Any],
) -> None:
    config = make_config(
        model={"id": "a/b", "attention": "flash_attention_2", "dtype": "bfloat16"},
        performance={"fused_loss": True},
    )
    check_device(config, use_gpu=True)
    check_device(make_config(), use_gpu=False)
    with pytest.raises(TrainingError, match="need a GPU, and the workers of this run") as raised:
        check_device(config, use_gpu=False)
    remedy = raised.value.remedy
    assert "model.attention=sdpa and performance.fused_loss=false" in remedy
    tf32 = make_config(performance={"tf32": True})
    with pytest.raises(TrainingError, match=r"performance\.tf32=true needs a GPU"):
        check_device(tf32, use_gpu=False)
