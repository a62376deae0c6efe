"""The plan of a training: does it fit, how fast is it, what does it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from llmops_kernel.planner.learning import Learned
from llmops_kernel.planner.memory import PARTS, Memory, memory
from llmops_kernel.planner.setup import Setup
from llmops_kernel.planner.speed import Rates, Speed, speed, work

_HOUR_S: Final = 3600.0
_MOST: Final = 4096
"""Largest micro batch that is looked for."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The devices that a training runs on; None is unknown."""

    name: str = ""
    memory_bytes: float | None = None
    """Of one device."""
    host_bytes: float | None = None
    """Of one node."""
    rates: Rates | None = None
    watts: float | None = None
    """Of one device under load."""
    node_hour: float | None = None
    kwh: float | None = None
    """Price of a kWh."""
    currency: str = ""
    devices_per_node: int = 1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a number of steps takes."""

    steps: int
    time_s: float
    device_hours: float
    node_hours: float
    kilowatt_hours: float | None = None
    energy_money: float | None = None
    """Of these kWh, in `currency`; not part of `money`."""
    money: float | None = None
    currency: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is expected of a training; None is unknown."""

    setup: Setup
    hardware: Hardware
    memory: Memory
    fits: bool | None
    """On the device, and in the host's memory."""
    largest_micro_batch: int | None
    """That fits with the other settings as they are; 0: none does."""
    speed: Speed | None
    cost: Cost | None
    assumptions: tuple[str, ...] = ()
    learned: Learned | None = None
    """What corrects speed and memory; None where nothing was learned."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as command line, REST and Lab have them; bytes, seconds, 0..1."""
        setup, hardware, moving = self.setup, self.hardware, self.speed
        return {
            "model_type": setup.architecture.shape.model_type,
            "params": setup.base_params,
            "trained_params": setup.trained_params,
            "num_workers": setup.num_workers,
            "micro_batch_size": setup.micro_batch_size,
            "length": setup.length,
            "dtype": setup.dtype,
            "device": hardware.name,
            "on_gpu": setup.on_gpu,
            "memory": {part: getattr(self.memory, part) for part in PARTS},
            "memory_total": self.memory.total,
            "memory_bytes": hardware.memory_bytes,
            "moment": self.memory.moment,
            "host_needed": self.memory.host,
            "host_bytes": hardware.host_bytes,
            "fits": self.fits,
            "largest_micro_batch": self.largest_micro_batch,
            "speed": None
            if moving is None
            else {**asdict(moving), "tokens_per_second": moving.tokens_per_second},
            "cost": None if self.cost is None else asdict(self.cost),
            "assumptions": list(self.assumptions),
            "learned": None if self.learned is None else self.learned.to_dict(),
        }


def plan(
    setup: Setup,
    hardware: Hardware,
    *,
    steps: int | None = None,
    assumptions: Iterable[str] = (),
    learned: Learned | None = None,
) -> Plan:
    """Return the plan of a training of `steps` optimizer steps; its cost is None without them."""
    needed, moving = needed_memory(setup, learned), None
    if learned is not None:
        rates = hardware.rates or Rates(peak_flops=learned.peak_flops)
        moving = speed(setup, rates, learned.seconds(work(setup)))
    elif hardware.rates is not None:
        moving = speed(setup, hardware.rates)
    return Plan(
        setup=setup,
        hardware=hardware,
        memory=needed,
        fits=fits(needed, hardware),
        largest_micro_batch=largest_micro_batch(setup, hardware, learned),
        speed=moving,
        cost=None if steps is None or moving is None else _cost(setup, hardware, moving, steps),
        assumptions=tuple(assumptions),
        learned=learned,
    )


def needed_memory(setup: Setup, learned: Learned | None) -> Memory:
    """Return the memory of a training, corrected by what was learned."""
    needed = memory(setup)
    return needed if learned is None else learned.corrected(needed)


def fits(needed: Memory, hardware: Hardware) -> bool | None:
    """Return whether it fits; None where the memory of the device is not known."""
    if hardware.memory_bytes is None:
        return None
    if needed.total > hardware.memory_bytes:
        return False
    return hardware.host_bytes is None or needed.host <= hardware.host_bytes


def largest_micro_batch(
    setup: Setup, hardware: Hardware, learned: Learned | None = None
) -> int | None:
    """Return the largest micro batch that fits, by bisection; None where memory is not known."""
    if hardware.memory_bytes is None:
        return None

    def is_fitting(size: int) -> bool:
        return fits(needed_memory(replace(setup, micro_batch_size=size), learned), hardware) is True

    low, high = 0, 1
    while high <= _MOST and is_fitting(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_fitting(middle) else (low, middle)
    return low


def _cost(setup: Setup, hardware: Hardware, moving: Speed, steps: int) -> Cost:
    time_s = steps * moving.step_s
    hours = time_s / _HOUR_S
    device_hours = hours * setup.num_workers
    # A node counts whole, as in the cost of a run that has ended.
    nodes = -(-setup.num_workers // max(1, hardware.devices_per_node))
    node_hours = hours * nodes
    watts, price = hardware.watts, hardware.node_hour
    energy = None if watts is None else device_hours * watts / 1000
    energy_money = None if energy is None or hardware.kwh is None else energy * hardware.kwh
    return Cost(
        steps=steps,
        time_s=time_s,
        device_hours=device_hours,
        node_hours=node_hours,
        kilowatt_hours=energy,
        energy_money=energy_money,
        money=None if price is None else node_hours * price,
        currency=hardware.currency if (price, energy_money) != (None, None) else "",
    )
