"""What `model.dtype: auto` becomes at the start of a training on this node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ConfigError
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.performance import resolve_dtype

Config = Callable[..., Any]


def resolved(config: Any, folder: Path) -> tuple[str, str]:
    context = WorkerContext(run_id="r", folder=folder, workspace=folder)
    found, words = resolve_dtype(config, context)
    return found.model.dtype, words


@pytest.mark.parametrize(
    ("model", "performance", "dtype", "words"),
    [
        ({"dtype": "auto"}, {}, "float32", "float32 (CPUs train in it)"),
        ({"dtype": "bfloat16"}, {}, "bfloat16", ""),
        ({"dtype": "float32"}, {}, "float32", ""),
        (
            {"dtype": "auto"},
            {"tf32": True},
            "float32",
            "float32 (performance.tf32 is for float32 products)",
        ),
    ],
)
def test_what_the_config_names_stays_and_auto_is_chosen_with_its_reason(
    make_config: Config,
    tmp_path: Path,
    model: dict[str, Any],
    performance: dict[str, Any],
    dtype: str,
    words: str,
) -> None:
    config = make_config(model={"id": "tiny-llama", **model}, performance=performance)
    assert resolved(config, tmp_path) == (dtype, words)


def test_a_kernel_for_bfloat16_alone_is_refused_where_there_is_none(
    make_config: Config, tmp_path: Path
) -> None:
    config = make_config(
        model={"id": "tiny-llama", "dtype": "auto", "attention": "flash_attention_2"}
    )
    said = r"computes in bfloat16 only, and model.dtype=auto is float32 \(CPUs train in it\) here"
    with pytest.raises(ConfigError, match=said):
        resolved(config, tmp_path)
