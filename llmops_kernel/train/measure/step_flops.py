"""Counts the FLOPs of a step for the network that is really trained."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn import functional

from llmops_kernel.driver.inputs import installed_versions
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.metrics.model_work import (
    AttentionWork,
    Kernels,
    ModelWork,
    executed_flops,
    palm_flops,
    required_flops,
)
from llmops_kernel.store.paths import cache
from llmops_kernel.track.model import describe_model
from llmops_kernel.train.measure.module_work import TOLERANCE, Count, count_work
from llmops_kernel.train.measure.step_timer import StepCounts
from llmops_kernel.train.measure.twin import Twin, make_twin, shape_of

_DASH = "they are shown as a dash; loss and tokens per second are not affected"


@dataclass(frozen=True)
class Flops:
    """FLOPs of one step, of all workers together; None while unknown."""

    required: float | None = None
    """`mfu`: what this training needs, attention to earlier tokens only."""
    palm: float | None = None
    """`mfu_palm`: what other tools credit for the same step."""
    executed: float | None = None
    """`hfu`: with padding, all that attention computes and what is computed once more."""
    recomputed: float | None = None
    """Of these what is computed once more."""


class StepFlops:
    """Counts a model once, before it is wrapped, and checks the count after the first step.

    Called with what all workers together counted in a step. A count that an earlier
    run has checked is used at once. Else a known family is counted from its config until `check`,
    which takes a fraction of a second.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        checkpointing: bool = False,
        replaces_linear: bool = False,
        kernels: Kernels | None = None,
        cache: Path | None = None,
        references: int = 0,
    ) -> None:
        """Set it up. `kernels`: of attention; None where what they compute is not known.

        `replaces_linear`: ZeRO-3 trains with linear layers of its own, of which checkpointing
        repeats more. They are in force at the time of `check`, so that it counts them.
        `references`: forward passes of the model as it was, without gradients, over the same
        sequences in each step. Both models read a batch inside of the batch, without gradients.
        """
        self._checkpointing, self._references = checkpointing, references
        # What a process has put there stays until it ends, also without ZeRO-3.
        linear = "DeepSpeed" if replaces_linear else functional.linear.__module__
        recomputing = f"with linear layers of {linear}" if checkpointing else ""
        self._kernels = kernels
        self._problem = ""
        self._twin: Twin | None = None
        self._file = WorkFile(work_key(network, recomputing), cache)
        self._work = self._file.read()
        self._preliminary: Callable[[StepCounts], float] | None = None
        if self._work is None:
            self._preliminary = _from_config(network)
            self._prepare(network)

    def _prepare(self, network: nn.Module) -> None:
        try:
            self._twin = make_twin(network)
        except Exception as error:  # Any code of any model runs here.
            self._problem = _words(error)

    def __call__(self, counts: StepCounts) -> Flops:
        if self._work is None:
            return Flops(self._preliminary(counts) if self._preliminary else None)
        required, palm, executed = self._pass(self._work, counts)
        once = self._executed(self._work, counts, again=False)
        recomputed = None if executed is None or once is None else executed - once
        reference = self._work.of_reference
        passes = [(reference, counts)] * self._references
        if counts.inner is not None:
            passes += [(reference, counts.inner), (self._work.without_gradients, counts.inner)]
        for work, each in passes:
            more = self._pass(work, each)
            required += more[0]
            palm += more[1] / 3  # Without the backward pass.
            executed = None if executed is None or more[2] is None else executed + more[2]
        return Flops(required, palm, executed, recomputed)

    def _pass(self, work: ModelWork, counts: StepCounts) -> tuple[float, float, float | None]:
        """Return what is required, credited and executed."""
        tokens, squares = counts.tokens, counts.sum_squared_lengths
        sums: dict[str, Any] = {"tokens": tokens, "sum_squared_lengths": squares}
        required = required_flops(work, **sums, logit_tokens=counts.logit_tokens)
        return required, palm_flops(work, **sums), self._executed(work, counts)

    def _executed(self, work: ModelWork, counts: StepCounts, *, again: bool = True) -> float | None:
        if self._kernels is None or counts.computed is None:
            return None
        return executed_flops(
            work if again else work.computed_once,
            counts.computed,
            self._kernels if again else self._kernels.computed_once,
            tokens=counts.tokens,
            sum_squared_lengths=counts.sum_squared_lengths,
        )

    def check(self) -> WarningEvent | None:
        """Count the modules and compare with PyTorch's counter, unless an earlier run has.

        Where the two disagree neither is used, and the warning to be shown is returned.
        """
        if self._work is not None:
            return None
        twin, self._twin = self._twin, None
        try:
            count = count_work(twin, checkpointing=self._checkpointing) if twin else None
        except Exception as error:  # Any code of any model runs here.
            count, self._problem = None, _words(error)
        if count is None and self._preliminary is not None:
            return None
        self._preliminary = None
        if count is None or not count.agrees:
            return self._warning(count)
        self._work = count.work
        self._file.write(count.work)
        return None

    def _warning(self, count: Count | None) -> WarningEvent:
        message = "FLOPs and MFU are unknown for this model"
        if count is None:
            return WarningEvent(message=f"{message}: {self._problem}.", remedy=_DASH)
        return WarningEvent(
            message=f"{message}: its modules multiply {count.by_modules / 1e9:,.4g} GFLOPs for a"
            f" sequence where PyTorch counts {count.executed / 1e9:,.4g}, more than"
            f" {TOLERANCE:.1%} apart. Neither number is used.",
            remedy=_DASH,
        )


def _words(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def _from_config(network: nn.Module) -> Callable[[StepCounts], float] | None:
    """Count from the config, where its family is known.

    Only a model of the libraries' own modules: others may multiply what no config says.
    """
    libraries = ("torch.nn.", "transformers.", "peft.")
    if not _is_language_model(network):
        return None
    if not all(type(module).__module__.startswith(libraries) for module in network.modules()):
        return None
    flops_of = describe_model(network).flops_of
    if flops_of is None:
        return None
    head = _head_flops(network)

    def count(counts: StepCounts) -> float:
        every_logit = flops_of(counts.tokens, counts.sum_squared_lengths) or 0.0
        return every_logit - head * (counts.tokens - counts.logit_tokens)

    return count


def _head_flops(network: Any) -> float:
    """Return FLOPs of one token's logits, with their gradients."""
    return sum(
        2.0 * (3 if parameter.requires_grad else 2) * shape_of(parameter).numel()
        for parameter in network.get_output_embeddings().parameters()
        if len(shape_of(parameter)) == 2
    )


# --- Counts of earlier runs on this node ---


FORMAT = 5
"""Raise it when the same modules are counted otherwise."""


class WorkFile:
    """The count of one model with one method; `key` from `work_key`."""

    def __init__(self, key: str, root: Path | None = None) -> None:
        self._file = (root or cache()) / "flops" / f"{key}.json"

    def read(self) -> ModelWork | None:
        """Return the count that was checked; None where there is none."""
        try:
            fields = json.loads(self._file.read_text())
            attention = tuple(AttentionWork(**layer) for layer in fields.pop("attention"))
            return ModelWork(**fields, attention=attention)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, work: ModelWork) -> None:
        """Keep a count; without a place to keep it, it is made again by the next run."""
        scratch = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(asdict(work)))
            scratch.replace(self._file)
        except OSError:
            return


def work_key(model: nn.Module, recomputing: str = "") -> str:
    """Return a hash of what the count depends on: classes, sizes, what is trained, versions.

    `recomputing`: how activations are, empty where they are stored.
    """
    config: Any = getattr(model, "config", None)
    facts = [
        f"{FORMAT} {recomputing} {installed_versions()}",
        config.to_json_string() if hasattr(config, "to_json_string") else "",
    ]
    for path, module in model.named_modules():
        facts.append(f"{path}:{type(module).__module__}.{type(module).__qualname__}")
        # Of the module alone; `named_parameters` would take several times as long.
        facts += [
            f"{name}:{tuple(shape_of(parameter))}:{parameter.requires_grad}"
            for name, parameter in module._parameters.items()
            if parameter is not None
        ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


# --- FLOPs of a model that a script has loaded, counted from its modules where that is safe ---
# A script may have wrapped, sharded and hooked its model in any way. Counting runs a copy of it
# without memory, so code of the script must not be among what the copy would call.


_LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel")
"""Suffixes of language models; whether a token of another model looks at later ones is unknown."""
_LIBRARIES = ("torch.", "transformers.", "peft.")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def script_flops(model: nn.Module, *, cache: Path | None) -> Callable[[int, float], float] | None:
    """Return (tokens, sum of squared lengths) -> FLOPs of all workers; None if not countable.

    Takes a fraction of a second, once a model and a machine. Never raises: the script goes on.
    """
    try:
        if not _is_safe(model):
            return None
        work = _counted(model, cache)
    except Exception:  # Any code of any model runs here.
        return None
    if work is None:
        return None
    return lambda tokens, squares: required_flops(work, tokens=tokens, sum_squared_lengths=squares)


def _counted(model: nn.Module, cache: Path | None) -> ModelWork | None:
    file = WorkFile(work_key(model), cache)
    if (cached := file.read()) is not None:
        return cached
    count = count_work(make_twin(model))
    if not count.agrees:
        return None
    file.write(count.work)
    return count.work


def _is_language_model(model: Any) -> bool:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return type(base).__name__.endswith(_LANGUAGE_MODELS) and not hasattr(base, "hf_device_map")


def _is_safe(model: Any) -> bool:
    if not _is_language_model(model):
        return False
    # Weights of FSDP and ZeRO-3: the copy's hooks would wait for the other workers.
    if any(
        hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id")
        for parameter in model.parameters()
    ):
        return False
    return all(
        str(getattr(hook, "__module__", "")).startswith(_LIBRARIES)
        for module in model.modules()
        for kind in _HOOKS
        for hook in (getattr(module, kind, None) or {}).values()
    )
