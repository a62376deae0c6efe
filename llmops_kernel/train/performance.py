"""Chooses what makes this run faster on this device, and says why."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.hardware.precision import (
    AUTO,
    DeviceFacts,
    Precision,
    choose_dtype,
    cpu_facts,
    gpu_facts,
    weakest,
)
from llmops_kernel.train.collectives import gather
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.collate import GPU_MULTIPLE, width_multiple
from llmops_kernel.train.data.examples import IGNORED, Example, Packed

_SAMPLED_ROWS = 256
"""Rows from which the share of tokens with a label is estimated."""
_MOST_LABELLED = 0.9
"""With more labels than this, choosing their positions costs what it saves."""


@dataclass(frozen=True)
class Chosen:
    """The options of batches and of what the model computes for them."""

    label_logits: bool = False
    """Logits only at tokens that the loss counts."""
    group_by_length: bool = False
    padding_free: bool = False
    pad_to_multiple_of: int = GPU_MULTIPLE
    words: tuple[str, ...] = ()
    """The choices and their reasons, for the journal."""

    @property
    def text(self) -> str:
        return "; ".join(self.words)


def resolve_dtype(config: TrainingConfig, context: WorkerContext) -> tuple[TrainingConfig, str]:
    """Return the config with the number format that it computes in, and words on the choice.

    Workers on unlike GPUs agree on the one that all of them have. Call it on all workers, before
    anything else reads `model.dtype`. Raises ConfigError.
    """
    if config.model.dtype != AUTO:
        return config, ""
    device = _slowest_gpu(context) if context.use_gpu else cpu_facts()
    precision = choose_dtype(AUTO, device, trains=True)
    if config.performance.tf32:
        precision = Precision("float32", "performance.tf32 is for float32 products")
    if config.model.attention.startswith("flash") and precision.dtype != "bfloat16":
        raise ConfigError(
            f"{config.model.attention} computes in bfloat16 only, and model.dtype=auto is"
            f" {precision.summary} here.",
            remedy="set model.attention=sdpa",
        )
    model = config.model.model_copy(update={"dtype": precision.dtype})
    return config.model_copy(update={"model": model}), precision.summary


def _slowest_gpu(context: WorkerContext) -> DeviceFacts:
    """Return the facts of this worker's GPU, or of another worker's that has no bfloat16."""
    # The one that Accelerate takes in a moment.
    torch.cuda.set_device(context.local_rank % torch.cuda.device_count())
    return weakest(gather(gpu_facts(torch.cuda)))


def choose(
    config: TrainingConfig,
    network: Any,
    examples: Sequence[Example | Packed],
    *,
    precision: str,
    use_gpu: bool,
) -> Chosen:
    """Return what is safe and useful for this model and data; `precision` is its first word."""
    performance, words = config.performance, [precision] if precision else []
    settings = getattr(_bare(network), "config", None)
    if attention := getattr(settings, "_attn_implementation", None):
        words.append(f"attention {attention}")
    by_label, why = _label_logits(config, network, examples)
    words.append(why)
    groups = groups_by_length(config)
    if groups:
        words.append("rows of like length in one micro batch")
    if performance.padding_free:  # That it keeps rows apart is checked once the engine is ready.
        words.append("no padding")
    words += [
        text
        for text, is_on in (
            ("fused loss by Liger", performance.fused_loss),
            ("compiled", performance.compile),
            ("TF32", performance.tf32),
        )
        if is_on
    ]
    return Chosen(
        label_logits=by_label,
        group_by_length=groups,
        padding_free=performance.padding_free,
        pad_to_multiple_of=width_multiple(use_gpu=use_gpu),
        words=tuple(filter(None, words)),
    )


def _label_logits(
    config: TrainingConfig, network: Any, examples: Sequence[Example | Packed]
) -> tuple[bool, str]:
    """Return whether logits are computed at labels only, and why."""
    performance = config.performance
    if config.objective.output != "text":
        return False, ""  # There are no logits of tokens.
    if not performance.automatic or performance.fused_loss or performance.compile:
        return False, ""  # Liger stores no logits; a compiled model wants equal shapes.
    if hindrance := label_logits_hindrance(network):
        return False, f"logits of all tokens ({hindrance})"
    share = labelled_share(examples)
    if share > _MOST_LABELLED:
        return False, f"logits of all tokens ({share:.0%} have a label)"
    return True, f"logits at labels only ({share:.0%} of the tokens have one)"


def labelled_share(examples: Sequence[Example | Packed]) -> float:
    """Return the share of tokens with a label, from the first rows."""
    rows = list(islice(examples, _SAMPLED_ROWS))
    tokens = sum(len(row.labels) for row in rows)
    labelled = sum(len(row.labels) - row.labels.count(IGNORED) for row in rows)
    return labelled / tokens if tokens else 1.0


def label_logits_hindrance(network: Any) -> str:
    """Return why logits cannot be computed at some positions only; empty if they can.

    Proof is Transformers' own code: the model's `forward` selects positions by
    `slice_logits_to_keep` (5.23), so that it computes the rest, such as a soft cap or a scale,
    for each position by itself, and its loss is the common one, which reads nothing but logits
    and labels.
    """
    from transformers.loss.loss_utils import ForCausalLMLoss

    model = _bare(network)
    kind = type(model)
    if not kind.__module__.startswith("transformers.models."):
        return f"{kind.__name__} is not a model of Transformers"
    names = inspect.unwrap(kind.forward).__code__.co_names
    if "slice_logits_to_keep" not in names:
        return f"{kind.__name__} cannot leave logits out"
    calls_it = "loss_function" in names
    if not calls_it or getattr(model, "loss_function", None) is not ForCausalLMLoss:
        return f"{kind.__name__} has a loss of its own"
    return ""


def _bare(network: Any) -> Any:
    """Return the model without PEFT's wrapper."""
    return network.get_base_model() if hasattr(network, "get_base_model") else network


# --- Batches of rows of like length ---


Row = Example | Packed


class _Sized(Protocol):
    @property
    def input_ids(self) -> Sized: ...


R = TypeVar("R", bound=_Sized)


@dataclass(frozen=True)
class Grouping:
    """Sorts the rows that a worker reads for one step, and only those.

    So each step trains on the rows that it would see anyway, on the same worker, and its loss is
    the same sum in another order. A resumed run continues with the same rows, since nothing is
    changed about which rows are read when.
    """

    collate: Callable[[Sequence[Row]], dict[str, Any]]

    def batches(self, batches: Iterator[list[Row]], count: int) -> Iterator[dict[str, Any]]:
        """Read up to `count` micro batches of rows; yield as many of the same sizes."""
        for rows in by_length(list(islice(batches, count))):
            yield self.collate(rows)


def groups_by_length(config: TrainingConfig) -> bool:
    """Return whether a run groups: several micro batches in a step, and `performance` allows it."""
    setting, several = config.performance.group_by_length, config.gradient_accumulation_steps > 1
    if config.objective.shares_batch:
        return False
    if setting == "auto":
        return config.performance.automatic and several
    return setting and several


def by_length(batches: Sequence[Sequence[R]]) -> list[list[R]]:
    """Return the same rows in batches of the same sizes, the longest rows first.

    The longest first: a batch that does not fit into memory fails before the others were computed.
    Equal lengths keep their order.
    """
    rows = sorted((row for rows in batches for row in rows), key=lambda row: -len(row.input_ids))
    rest = iter(rows)
    return [list(islice(rest, len(batch))) for batch in batches]
