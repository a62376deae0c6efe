"""A package that a method needs is looked for before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from llmops_kernel.config.models.methods import METHODS, MethodConfig
from llmops_kernel.errors import TrainingError
from llmops_kernel.train.requirements import check_packages


class RareMethod(MethodConfig):
    variant_name = "rare"
    summary = "needs a package that nobody has"
    apply = "llmops_kernel.train.methods.full:prepare"
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
