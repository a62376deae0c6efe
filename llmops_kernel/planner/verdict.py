"""What bounds a training, and the setting to change: from its waterfall and its config.

A change is predicted by Amdahl's law: the time that it removes, or the share of it that goes with
fewer repetitions, with all else as it was measured. What that assumes stands beside the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from llmops_kernel.metrics.waterfall import Waterfall

Bound = Literal[
    "compute",
    "memory capacity",
    "memory bandwidth",
    "network",
    "data",
    "host offload",
    "Python",
    "evaluation and checkpoints",
]
Fits = Callable[[Mapping[str, Any]], bool | None]
"""Says whether the run would fit with a change; False also for one that its config refuses."""
LEAST_GAIN: Final = 0.05
_LEAST_SHARE: Final = 0.2
"""Of the time, for something other than computing to bound the run."""
_FEWER: Final = 4
"""How many times fewer steps of the optimizer, evaluations or checkpoints are proposed."""
_MOST_TIMES: Final = 16
"""How many times larger a micro batch is proposed at most."""


@dataclass(frozen=True)
class Facts:
    """What a verdict must know of a run beside its waterfall."""

    config: Mapping[str, Any]
    """The config as it was resolved: sections with plain values."""
    num_params: int = 0
    num_trainable: int = 0
    is_streamed: bool = False
    update_s: float | None = None
    """Seconds of the optimizer's step on the device itself, of one worker's share; an estimate."""

    def value(self, key: str) -> Any:
        section, _, name = key.partition(".")
        values = self.config.get(section)
        return values.get(name) if isinstance(values, Mapping) else None

    @property
    def workers(self) -> int:
        return int(self.value("parallelism.num_workers") or 1)

    @property
    def micro_batch(self) -> int:
        size = self.value("training.micro_batch_size")
        return size if isinstance(size, int) else 1

    @property
    def global_batch(self) -> int:
        return int(self.value("training.global_batch_size") or 1)

    @property
    def micro_batches(self) -> int:
        """Return those of one worker in a step."""
        return max(1, self.global_batch // (self.micro_batch * self.workers))


@dataclass(frozen=True)
class Candidate:
    """A change with the time that is left of each second after it."""

    change: Mapping[str, Any]
    time_left: float
    assumes: str
    alters: bool = False
    """The losses become others, as with a larger global batch."""

    @property
    def gain(self) -> float:
        """Return by what share more tokens are made in a second."""
        return 1.0 / max(self.time_left, 1e-3) - 1.0


@dataclass(frozen=True)
class Verdict:
    """What bounds a run, and what to do about it."""

    bound: Bound
    share: float
    """Of the time."""
    sentence: str
    change: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of the config with new values: `run.resubmit(**change)`. Empty: nothing that is
    known to fit gains more than 5 %."""
    gain: float | None = None
    """Predicted share of additional tokens a second; None without a change."""
    tokens_per_second: float | None = None
    """Predicted, evaluations and checkpoints included."""
    assumes: str = ""


def verdict(waterfall: Waterfall, facts: Facts, fits: Fits = lambda change: None) -> Verdict:
    """Return what bounds the run, with the change that is predicted to gain most.

    A change after which the losses are others is proposed only where none without that gains half
    as much.
    """
    times = _times(waterfall)
    bound, share = max(times.items(), key=lambda pair: pair[1])
    if share < _LEAST_SHARE:
        bound, share = "compute", 1.0 - sum(times.values())
    ranked = sorted(_candidates(waterfall, facts), key=lambda one: one.gain, reverse=True)
    worth = [one for one in ranked if one.gain > LEAST_GAIN]
    answers = [(one, fits(one.change)) for one in worth]
    chosen = _choose([one for one, answer in answers if answer is not False])
    refused = next((one for one, answer in answers if answer is False), None)
    if bound in ("compute", "host offload") and chosen is None and refused is not None:
        bound = "memory capacity"
    is_checked = any(one is chosen and answer for one, answer in answers)
    return _worded(waterfall, (bound, share), chosen, refused, is_checked=is_checked)


def _choose(candidates: list[Candidate]) -> Candidate | None:
    best = candidates[0] if candidates else None
    same = next((one for one in candidates if not one.alters), None)
    return same if best is not None and same is not None and same.gain >= best.gain / 2 else best


def _times(waterfall: Waterfall) -> dict[Bound, float]:
    """Return the share of the time that each bound but computing takes."""
    share = waterfall.share
    return {
        "data": share("data"),
        "network": share("communication"),
        "host offload": share("offload"),
        "memory bandwidth": share("optimizer"),
        "Python": share("fixed") + share("between"),
        "evaluation and checkpoints": share("evaluation") + share("save"),
    }


# --- Changes ---


def _candidates(waterfall: Waterfall, facts: Facts) -> Iterator[Candidate]:
    share = waterfall.share
    if share("data"):
        yield _for_data(share("data"), facts)
    yield from _for_micro_batches(waterfall, facts)
    yield from _for_network(share("communication"), facts)
    if facts.value("parallelism.offload_optimizer"):
        yield _without_offload(waterfall, facts)
    yield from _for_recomputation(waterfall, facts)
    yield from _for_fewer_steps(waterfall, facts)
    repeated = {"evaluation": share("evaluation"), "checkpoint": share("save")}
    for section, once in repeated.items():
        every = facts.value(f"{section}.every_steps")
        if every:
            yield Candidate(
                {f"{section}.every_steps": int(every) * _FEWER},
                1.0 - once * (1 - 1 / _FEWER),
                "each takes as long as now",
            )


def _for_data(share: float, facts: Facts) -> Candidate:
    if facts.is_streamed:
        return Candidate(
            {"data.streaming": False},
            1.0 - share,
            "rows are read and formatted before the first step, once, instead of during the steps",
        )
    arguments = dict(facts.config.get("training_arguments") or {})
    loaders = int(arguments.get("dataloader_num_workers") or 0)
    more = 2 * loaders or 2
    return Candidate(
        {"training_arguments.dataloader_num_workers": more},
        1.0 - share * (1 - max(1, loaders) / more),
        "processes of their own read as fast as the worker did, on cores that are idle",
    )


def _for_micro_batches(waterfall: Waterfall, facts: Facts) -> Iterator[Candidate]:
    """Yield larger micro batches of the same global batch; else of a larger one."""
    rows = facts.micro_batch * facts.micro_batches
    fixed, sent = waterfall.share("fixed"), waterfall.share("communication")
    assumes = "a pass over one token takes what a micro batch takes at any size; padding as now"
    most = min(rows, facts.micro_batch * _MOST_TIMES)
    for size in (size for size in range(facts.micro_batch + 1, most + 1) if rows % size == 0):
        times = size / facts.micro_batch
        left = 1.0 - fixed * (1 - 1 / times)
        if facts.value("parallelism.strategy") in ("zero2", "zero3", "fsdp"):
            left -= sent * (1 - _sent(facts, passes=rows // size) / _sent(facts))
        yield Candidate({"training.micro_batch_size": size}, left, assumes)
    if facts.micro_batches == 1:
        again = waterfall.share("optimizer") + waterfall.share("offload") + sent
        for times in (2, _FEWER):
            yield Candidate(
                {
                    "training.micro_batch_size": facts.micro_batch * times,
                    "training.global_batch_size": facts.global_batch * times,
                },
                1.0 - (fixed + again) * (1 - 1 / times),
                f"{assumes}; the optimizer makes fewer steps with larger batches",
                alters=True,
            )


def _sent(facts: Facts, *, strategy: str | None = None, passes: int | None = None) -> float:
    """Return the weights that a worker sends in a step, in shares of the model.

    Rings send what they spread or sum once each (ZeRO, arXiv 1910.02054). ZeRO-2 and 3 sum the
    gradients after each pass; ZeRO-3 and FSDP gather the weights before each forward and backward
    pass, the others those that were updated.
    """
    strategy = strategy or str(facts.value("parallelism.strategy"))
    passes = passes or facts.micro_batches
    trained = facts.num_trainable / facts.num_params if facts.num_params else 1.0
    return {
        "zero2": (passes + 1) * trained,
        "zero3": passes * (2 + trained),
        "fsdp": 2 * passes + trained,
    }.get(strategy, 2 * trained)


def _for_network(share: float, facts: Facts) -> Iterator[Candidate]:
    """Yield strategies that send less, and keep more on each worker."""
    now = _sent(facts)
    if facts.value("parallelism.offload_params"):
        return
    strategies = ("zero2",) if facts.value("parallelism.offload_optimizer") else ("ddp", "zero2")
    for strategy in strategies:
        sends = _sent(facts, strategy=strategy)
        if sends < now:
            yield Candidate(
                {"parallelism.strategy": strategy},
                1.0 - share * (1 - sends / now),
                "the time that is waited for others falls as the bytes that are sent",
            )


def _without_offload(waterfall: Waterfall, facts: Facts) -> Candidate:
    per_step_s = waterfall.measured.window_s / waterfall.measured.steps
    share = waterfall.share("offload")
    stays = min(share, (facts.update_s or 0.0) / per_step_s)
    return Candidate(
        {"parallelism.offload_optimizer": False},
        1.0 - share + stays,
        f"the optimizer takes {(facts.update_s or 0.0) * 1000:,.0f} ms where the weights are",
    )


def _for_recomputation(waterfall: Waterfall, facts: Facts) -> Iterator[Candidate]:
    measured = waterfall.measured
    if facts.value("parallelism.gradient_checkpointing") and measured.hfu and measured.recomputed:
        passes = measured.part_s("passes_s") / measured.window_s
        yield Candidate(
            {"parallelism.gradient_checkpointing": False},
            1.0 - passes * measured.recomputed / measured.hfu,
            "passes take as long for each operation as now",
        )


def _for_fewer_steps(waterfall: Waterfall, facts: Facts) -> Iterator[Candidate]:
    """Yield a larger global batch of as large micro batches: less often what a step does once."""
    once = waterfall.share("optimizer") + waterfall.share("offload")
    if _sent(facts, passes=1) == _sent(facts, passes=2):
        once += waterfall.share("communication")
    yield Candidate(
        {"training.global_batch_size": facts.global_batch * _FEWER},
        1.0 - once * (1 - 1 / _FEWER),
        "the optimizer makes fewer steps with larger batches, and the workers meet as seldom",
        alters=True,
    )


# --- Words ---

_DOES: Final[dict[Bound, str]] = {
    "compute": "of the time goes into forward and backward passes",
    "memory capacity": "of the time goes into passes; what would be faster does not fit",
    "memory bandwidth": "of the time goes into the optimizer's step, which moves its states",
    "network": "of the time waits for other workers",
    "data": "of the time waits for data",
    "host offload": "of the time goes into the optimizer's step in host memory",
    "Python": "of the time goes into what micro batches of any size take",
    "evaluation and checkpoints": "of the time goes into evaluations and checkpoints",
}


def _worded(
    waterfall: Waterfall,
    bound: tuple[Bound, float],
    chosen: Candidate | None,
    refused: Candidate | None,
    *,
    is_checked: bool,
) -> Verdict:
    name, share = bound
    first = f"Bound by {name}: {share:.0%} {_DOES[name]}"
    unknown = waterfall.share("unexplained")
    if name == "compute" and unknown > share / 2:
        first += (
            f", and {unknown:.0%} is not explained by what they compute: element-wise operations,"
            " small products or a busy machine"
        )
    first += "."
    if chosen is None:
        without = (
            f" {', '.join(overrides_of(refused.change))} would not fit."
            if refused is not None
            else ""
        )
        return Verdict(name, share, f"{first}{without} No change is known to gain more than 5 %.")
    speed = waterfall.measured.overall_tokens_per_second
    rate = None if speed is None else speed * (1 + chosen.gain)
    predicted = f"{chosen.gain:+.0%} tokens/s"
    if rate is not None:
        predicted += f", to {rate:,.0f}"
    notes = "" if is_checked or not needs_memory(chosen.change) else " Not checked whether it fits."
    if chosen.alters:
        notes += " The losses will be others."
    change = ", ".join(overrides_of(chosen.change))
    sentence = f"{first} {change}: {predicted} predicted, if {chosen.assumes}.{notes}"
    return Verdict(name, share, sentence, dict(chosen.change), chosen.gain, rate, chosen.assumes)


def needs_memory(change: Mapping[str, Any]) -> bool:
    """Return whether a change may need more memory than a run has now."""
    free = ("data.", "training_arguments.", "evaluation.", "checkpoint.")
    return not all(key.startswith((*free, "training.global")) for key in change)


def overrides_of(change: Mapping[str, Any]) -> list[str]:
    """Return a change as overrides are written: `parallelism.strategy=ddp`."""
    words = {True: "true", False: "false"}
    pairs = (
        (key, words[value] if isinstance(value, bool) else value) for key, value in change.items()
    )
    return [f"{key}={value}" for key, value in pairs]
