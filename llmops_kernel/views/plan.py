"""A plan as text, as a table of several, and as a picture of stacked bars. Pure."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmops_kernel.config.counted import counted
from llmops_kernel.metrics.planned import PlannedRun
from llmops_kernel.views import format as fmt
from llmops_kernel.views.panel import PanelBar

_PARTS: Final = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "logits": "logits",
    "buffers": "communication",
    "overhead": "context, fragments",
}
_MOMENTS: Final = {
    "forward": "at the end of the forward pass",
    "loss": "when the backward pass begins",
    "backward": "in the backward pass",
    "step": "in the optimizer's step",
}
_BAR: Final = 24
_ERROR: Final = 0.04
"""Share by which real trainings differed from their plans at most (tests/benchmarks)."""
Values = Mapping[str, Any]
"""A plan's `to_dict`."""


def facts(values: Values) -> dict[str, str]:
    """Return what a plan says, by label; what is unknown is a dash."""
    trained = values["trained_params"]
    share = f", {_weights(trained)} trained" if trained != values["params"] else ", all trained"
    pairs = {
        "model": f"{values['model_type']}, {_weights(values['params'])} weights{share}",
        "memory": _memory(values),
        "": "\n".join(bars(values)),
        "host memory": _host(values),
        "micro batch": _micro_batch(values),
        "speed": _speed(values),
        "cost": _cost(values),
        "traced": _traced(values.get("traced")),
        "learned": "\n".join(learned_words(values["learned"])),
        "assumed": "\n".join(values["assumptions"]),
    }
    return {label: text for label, text in pairs.items() if text}


def _weights(value: float) -> str:
    """Return `135 million`, `69.0 billion`, as model cards do."""
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.3g} {word}"
    return fmt.count(value)


def device_words(values: Values) -> str:
    """Return `a GPU` or `a worker`: what the memory of a plan is counted for."""
    return "a GPU" if values["on_gpu"] else "a worker"


def _memory(values: Values) -> str:
    total, available = values["memory_total"], values["memory_bytes"]
    of = "" if available is None else f" of {fmt.byte_size(available)}"
    when = _MOMENTS[values["moment"]]
    return f"{fmt.byte_size(total)}{of} {device_words(values)}: {verdict(values)}; most {when}"


def verdict(values: Values) -> str:
    """Return whether it fits, in words."""
    if values["fits"] is None:
        return "unknown whether it fits"
    available = values["memory_bytes"]
    if values["fits"]:
        left = 1 - values["memory_total"] / available
        return "fits" if left > _ERROR else "fits by less than the plan's own error"
    return (
        "does not fit" if values["memory_total"] > available else "the host's memory is too small"
    )


def parts(values: Values) -> list[tuple[str, str, float]]:
    """Return what the memory is for: label, size, share of the whole 0..1; none of zero bytes."""
    total = values["memory_total"] or 1.0
    return [
        (_PARTS[key], fmt.byte_size(size), size / total)
        for key, size in values["memory"].items()
        if size > 0
    ]


def bars(values: Values) -> list[str]:
    """Return a line for each part with a bar, as wide as its share of the total."""
    shown = parts(values)
    width = max((len(label) for label, _, _ in shown), default=0)
    return [
        f"{label:{width}}  {size:>9}  {'█' * round(_BAR * share)}" for label, size, share in shown
    ]


def _host(values: Values) -> str:
    if not values["host_needed"]:
        return ""
    available = values["host_bytes"]
    of = "" if available is None else f" of {fmt.byte_size(available)}"
    return f"{fmt.byte_size(values['host_needed'])}{of} a node"


def _micro_batch(values: Values) -> str:
    largest, chosen = values["largest_micro_batch"], values["micro_batch_size"]
    if largest is None:
        return ""
    if not largest:
        return f"none fits (micro_batch_size={chosen})"
    return f"at most {counted(largest, 'row')} fit (micro_batch_size={chosen})"


def _speed(values: Values) -> str:
    speed = values["speed"]
    if speed is None:
        return f"{fmt.DASH} (the peak of {values['device'] or 'the device'} is not known)"
    parts = {
        "computing": speed["compute_s"],
        "communication": speed["communication_s"],
        "optimizer": speed["optimizer_s"],
    }
    shares = ", ".join(
        f"{name} {fmt.percent(part / speed['step_s'])}" for name, part in parts.items() if part
    )
    return (
        f"{fmt.rate(speed['tokens_per_second'])} tokens/s, MFU {fmt.percent(speed['mfu'])},"
        f" {fmt.step_time(speed['step_s'])} a step ({shares})"
    )


def learned_words(learned: Values | None) -> list[str]:
    """Return what was learned from how many runs, and how wrong such predictions have been."""
    if learned is None:
        return []
    lines = [f"speed from {_runs(learned['runs'], learned['speed_error'])}"]
    if learned["memory_runs"]:
        lines.append(f"memory from {_runs(learned['memory_runs'], learned['memory_error'])}")
    return lines


def _runs(count: int, error: float | None) -> str:
    words = f"{counted(count, 'run')} on this device"
    if error is None:
        return f"{words}, with an error that is not known yet"
    return f"{words}: median error {error:.1%}, of each run planned from those before it"


def _cost(values: Values) -> str:
    cost = values["cost"]
    if cost is None:
        steps = (
            "the number of steps is not known: set training.max_steps, or give `llmops plan --rows`"
        )
        return f"{fmt.DASH} ({steps})" if values["speed"] is not None else ""
    parts = [
        fmt.seconds(cost["time_s"]),
        f"{_amount(cost['device_hours'])} {'GPU' if values['on_gpu'] else 'worker'}-hours",
    ]
    if cost["kilowatt_hours"] is not None:
        money = cost["energy_money"]
        priced = "" if money is None else f" ({fmt.money(money)} {cost['currency']} of energy)"
        parts.append(f"at most {_amount(cost['kilowatt_hours'])} kWh{priced}")
    if cost["money"] is not None:
        parts.append(f"{fmt.money(cost['money'])} {cost['currency']}")
    return f"{cost['steps']:,} steps: {', '.join(parts)}"


_MUCH: Final = 0.1
"""Share by which two estimates may differ."""


def _traced(traced: Mapping[str, float] | None) -> str:
    if traced is None:
        return ""
    planned, total, reserved = traced["planned"], traced["traced"], traced["reserved"]
    share = planned / total - 1
    words = (
        f"one worker with ddp: {fmt.byte_size(total)} traced, {fmt.byte_size(planned)} planned"
        f" ({share:+.1%}); a GPU's allocator reserves {fmt.byte_size(reserved)}"
    )
    if abs(share) <= _MUCH:
        return words
    return f"{words}\nthe two differ by more than a tenth: trust the larger one"


def _amount(value: float) -> str:
    """Return `247.1`, or `under 0.01`: what is rented is never smaller."""
    return "under 0.01" if value < 0.01 else fmt.number(value)


def beside_measured(planned: PlannedRun | None) -> str:
    """Return what a run was planned to take without learning, beside what it took, on one line."""
    measured = None if planned is None else planned.measured
    if planned is None or measured is None:
        return ""
    parts = []
    if planned.step_time_s is not None:
        ratio = planned.step_time_s / measured.step_time_s
        parts.append(
            f"{fmt.step_time(planned.step_time_s)} a step, measured"
            f" {fmt.step_time(measured.step_time_s)} ({ratio - 1:+.0%})"
        )
    if measured.peak_memory_bytes:
        total = sum(planned.memory.values()) - planned.memory.get("overhead", 0.0)
        parts.append(
            f"{fmt.byte_size(total)} of allocated memory, measured"
            f" {fmt.byte_size(measured.peak_memory_bytes)}"
            f" ({total / measured.peak_memory_bytes - 1:+.0%})"
        )
    return "; ".join(parts)


MEMORY_TITLE: Final = "Memory of a device, planned and measured"


def memory_bars(planned: PlannedRun | None, peak_bytes: int | None) -> list[PanelBar]:
    """Return what allocated memory was planned for, part on part, and the peak that was measured.

    None where nothing was planned, and on CPUs, where no allocator reports a peak.
    """
    if planned is None or not planned.memory or not peak_bytes:
        return []
    sizes = {key: planned.memory.get(key, 0.0) for key in _PARTS if key != "overhead"}
    total = sum(sizes.values())
    whole = max(total, peak_bytes)
    rows, left = [], 0.0
    for key, size in sizes.items():
        if size > 0:
            rows.append(_bar(_PARTS[key], left / whole, size / whole, fmt.byte_size(size)))
            left += size
    rows.append(_bar("planned", 0.0, total / whole, fmt.byte_size(total)))
    more = f"{peak_bytes / total - 1:+.0%} of planned" if total else ""
    return [*rows, _bar("measured", 0.0, peak_bytes / whole, fmt.byte_size(peak_bytes), more)]


def _bar(name: str, left: float, width: float, text: str, detail: str = "") -> PanelBar:
    return PanelBar(
        name=name,
        detail=detail,
        left=left,
        width=width,
        text=text,
        running=False,
        interrupted=False,
    )


def memory_lines(bars: Sequence[PanelBar]) -> list[str]:
    """Return these bars as lines of at most 76 characters."""
    lines = []
    for bar in bars:
        drawn = " " * round(_BAR * bar.left) + "█" * max(1, round(_BAR * bar.width))
        lines.append(f"{bar.name:20} {bar.text:>9}  {drawn} {bar.detail}".rstrip())
    return lines


# --- Several plans beside each other ---

COLUMNS: Final = ("plan", "memory", "fits", "largest batch", "tokens/s", "MFU", "cost")


def row(name: str, values: Values) -> list[str]:
    """Return the cells of `COLUMNS`."""
    speed, cost, largest = values["speed"], values["cost"], values["largest_micro_batch"]
    money = None if cost is None else cost["money"]
    return [
        name,
        fmt.byte_size(values["memory_total"]),
        fmt.DASH if values["fits"] is None else "yes" if values["fits"] else "no",
        fmt.DASH if largest is None else f"{largest:,}",
        fmt.DASH if speed is None else fmt.rate(speed["tokens_per_second"]),
        fmt.DASH if speed is None else fmt.percent(speed["mfu"]),
        fmt.DASH if money is None else f"{fmt.money(money)} {cost['currency']}",
    ]


def picture(plans: Sequence[tuple[str, Values]]) -> bytes:
    """Return a PNG with a stacked bar of memory for each plan, and a line at the device's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.5 * len(plans)), layout="constrained")
    axes = figure.add_subplot()
    labels = [name for name, _ in plans]
    left = [0.0] * len(plans)
    for key, label in _PARTS.items():
        sizes = [values["memory"][key] / 2**30 for _, values in plans]
        if any(sizes):
            axes.barh(range(len(plans)), sizes, left=left, label=label)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    for available in {values["memory_bytes"] for _, values in plans} - {None}:
        axes.axvline(available / 2**30, color="black", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(plans)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("GiB of one device; dashed: what it has")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
