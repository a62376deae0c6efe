"""What a run's hosts, GPUs and workers do, as charts and tables, and where workers stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.metrics.events import StallEvent, SystemEvent
from llmops_kernel.metrics.system import HostSample, StackGroup, WorkerSample
from llmops_kernel.store.journal.summary import Unit
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.panel import (
    PanelLine,
    PanelStall,
    PanelSystem,
    PanelSystemChart,
    PanelTable,
)

MOST_POINTS = 120
"""Of a line of the panel: the whole state is sent with each change."""
MOST_WORKERS = 16
_HOURS_FROM_S = 3 * 3600.0
_GIB = 2.0**30
_MIB = 2.0**20

# --- Charts ---


@dataclass(frozen=True)
class _Chart:
    """A number of each worker, or of each host."""

    key: str
    title: str
    unit: str
    of_worker: Callable[[WorkerSample], float | None] | None = None
    of_host: Callable[[HostSample], float | None] | None = None


def _share(part_s: float | None, step_s: float | None) -> float | None:
    return None if part_s is None or not step_s else 100 * part_s / step_s


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


_CHARTS = (
    _Chart("gpu", "GPU utilization", " %", lambda w: _scaled(w.gpu_utilization, 100)),
    _Chart("gpu_memory", "GPU memory", " GiB", lambda w: _scaled(w.gpu_memory_bytes, 1 / _GIB)),
    _Chart("power", "GPU power", " W", lambda w: w.power_w),
    _Chart("temperature", "GPU temperature", " °C", lambda w: w.temperature_c),
    _Chart("data", "Waiting for data", " %", lambda w: _share(w.data_s, w.step_s)),
    _Chart("others", "Waiting for other ranks", " %", lambda w: _share(w.others_s, w.step_s)),
    _Chart("offload", "Optimizer in host memory", " %", lambda w: _share(w.host_s, w.step_s)),
    _Chart("cpu", "Host CPU", " %", None, lambda h: _scaled(h.cpu, 100)),
    _Chart("memory", "Host memory", " GiB", None, lambda h: _scaled(h.memory_used_bytes, 1 / _GIB)),
    _Chart("cores", "Cores of a worker", "", lambda w: w.cpu),
    _Chart(
        "disk",
        "Disk read and written a second",
        " MiB",
        None,
        lambda h: _sum(h.disk_read_bytes_per_second, h.disk_write_bytes_per_second),
    ),
    _Chart(
        "network",
        "Network in and out a second",
        " MiB",
        None,
        lambda h: _sum(h.network_sent_bytes_per_second, h.network_received_bytes_per_second),
    ),
)


def _sum(one: float | None, other: float | None) -> float | None:
    # To a kilobyte: a few bytes of a heartbeat would be drawn as a line of its own scale.
    return None if one is None or other is None else round((one + other) / _MIB, 3)


def system_parts(view: RunView) -> dict[str, Any]:
    """Return the fields of a panel's state that are about its machines."""
    return {"system": panel_system(view), "stall": panel_stall(view)}


def panel_system(view: RunView) -> PanelSystem:
    """Return the second row of charts; one whose numbers nobody knows is not there."""
    events = _of_attempt(view)
    picked = _picked(events)
    first_s = events[0].time_s if events else 0.0
    is_long = bool(events) and events[-1].time_s - first_s >= _HOURS_FROM_S
    unit_s = 3600.0 if is_long else 60.0
    charts = [chart for one in _CHARTS if _is_drawn(chart := _chart(one, picked))]
    count = len({worker.rank for event in picked for worker in event.workers})
    note = "" if count <= MOST_WORKERS else f"{MOST_WORKERS} of {count} workers are drawn."
    return PanelSystem(
        x_label=f"{'hours' if is_long else 'minutes'} since the first sample",
        x=[_short((event.time_s - first_s) / unit_s) for event in picked],
        charts=charts,
        workers=worker_table(view),
        hosts=host_table(view),
        note=note,
    )


def _is_drawn(chart: PanelSystemChart) -> bool:
    """Return whether something is known; of an optimizer on the device there is only zero."""
    values = [value for line in chart.lines for value in line.values if value is not None]
    return any(values) if chart.key == "offload" else bool(values)


def _of_attempt(view: RunView) -> list[SystemEvent]:
    return [event for event in view.system if event.attempt == view.attempt]


def _picked(events: Sequence[SystemEvent]) -> list[SystemEvent]:
    last, count = len(events) - 1, min(MOST_POINTS, len(events))
    return [events[i * last // (count - 1) if count > 1 else last] for i in range(count)]


def _chart(chart: _Chart, events: Sequence[SystemEvent]) -> PanelSystemChart:
    lines: dict[str, list[float | None]] = {}
    for place, event in enumerate(events):
        for label, value in _values(chart, event):
            if value is not None:
                lines.setdefault(label, [None] * len(events))[place] = _short(value)
    return PanelSystemChart(
        key=chart.key,
        title=chart.title,
        unit=chart.unit,
        lines=[PanelLine(label=label, values=values) for label, values in lines.items()],
    )


def _values(chart: _Chart, event: SystemEvent) -> Iterator[tuple[str, float | None]]:
    if chart.of_worker is not None:
        for worker in event.workers[:MOST_WORKERS]:
            yield f"rank {worker.rank}", chart.of_worker(worker)
    if chart.of_host is not None:
        for host in event.hosts:
            yield host.host, chart.of_host(host)


def _short(value: float) -> float:
    """Return four digits: the state of a panel is text."""
    return float(f"{value:.4g}")


# --- Tables of the newest sample ---

_WORKER_COLUMNS: tuple[tuple[str, Unit, Callable[[WorkerSample], float | None]], ...] = (
    ("step", "count", lambda w: w.step),
    ("GPU busy", "fraction", lambda w: w.gpu_utilization),
    ("GPU memory", "bytes", lambda w: w.gpu_memory_bytes),
    ("power, W", "number", lambda w: w.power_w),
    ("°C", "number", lambda w: w.temperature_c),
    ("own time", "seconds", lambda w: w.busy_s),
    ("data", "fraction", lambda w: _scaled(_share(w.data_s, w.step_s), 0.01)),
    ("other ranks", "fraction", lambda w: _scaled(_share(w.others_s, w.step_s), 0.01)),
    ("offload", "fraction", lambda w: _scaled(_share(w.host_s, w.step_s), 0.01)),
    ("cores", "number", lambda w: w.cpu),
    ("memory", "bytes", lambda w: w.memory_bytes),
)
_HOST_COLUMNS: tuple[tuple[str, Unit, Callable[[HostSample], float | None]], ...] = (
    ("CPU", "fraction", lambda h: h.cpu),
    ("load", "number", lambda h: h.load),
    ("memory", "bytes", lambda h: h.memory_used_bytes),
    ("memory total", "bytes", lambda h: h.memory_total_bytes),
    ("disk", "bytes", lambda h: h.disk_used_bytes),
    ("disk total", "bytes", lambda h: h.disk_total_bytes),
    ("read/s", "bytes", lambda h: h.disk_read_bytes_per_second),
    ("written/s", "bytes", lambda h: h.disk_write_bytes_per_second),
    ("sent/s", "bytes", lambda h: h.network_sent_bytes_per_second),
    ("received/s", "bytes", lambda h: h.network_received_bytes_per_second),
)


def worker_table(view: RunView) -> PanelTable:
    """Return one row a worker, with the columns that one of them has; slow ones say so."""
    newest = _of_attempt(view)[-1:]
    workers = newest[0].workers if newest else ()
    columns = [
        column for column in _WORKER_COLUMNS if any(column[2](w) is not None for w in workers)
    ]
    notes = [_note(worker) for worker in workers]
    head = ["rank", "host", "pid", *(name for name, _, _ in columns), *(["note"] * any(notes))]
    return PanelTable(
        columns=head,
        rows=[
            [
                f"{worker.rank}",
                worker.host,
                f"{worker.pid}",
                *(fmt.by_unit(value(worker), unit) for _, unit, value in columns),
                *([note] if any(notes) else []),
            ]
            for worker, note in zip(workers, notes, strict=True)
        ],
    )


def _note(worker: WorkerSample) -> str:
    slow = f"slower than the others: {worker.slow_part}" if worker.is_slow else ""
    throttled = f"clocks lowered: {', '.join(worker.throttled)}" if worker.throttled else ""
    return "; ".join(filter(None, (slow, throttled)))


def host_table(view: RunView) -> PanelTable:
    """Return one row a host, with the columns that one of them has."""
    newest = _of_attempt(view)[-1:]
    hosts = newest[0].hosts if newest else ()
    columns = [
        column for column in _HOST_COLUMNS if any(column[2](host) is not None for host in hosts)
    ]
    return PanelTable(
        columns=["host", *(name for name, _, _ in columns)],
        rows=[
            [host.host, *(fmt.by_unit(value(host), unit) for _, unit, value in columns)]
            for host in hosts
        ],
    )


def system_rows(view: RunView) -> list[dict[str, Any]]:
    """Return each measurement as a row: of a worker with its rank, of a host without."""
    rows: list[dict[str, Any]] = []
    for event in view.system:
        head = {"time_s": event.time_s, "attempt": event.attempt}
        each: list[WorkerSample | HostSample] = [*event.workers, *event.hosts]
        rows += [{**head, **one.model_dump()} for one in each]
        if event.energy_j is not None:
            rows[-1]["energy_j"] = event.energy_j
    return rows


# --- Where the workers stand ---


def panel_stall(view: RunView) -> PanelStall | None:
    """Return who waits for whom; None while steps end."""
    stall = view.stall
    if stall is None:
        return None
    return PanelStall(
        message=stall_head(stall),
        groups=group_table(stall.groups),
        stacks=stacks_of(stall.groups),
    )


def group_table(groups: Sequence[StackGroup]) -> PanelTable:
    """Return a row for each place where ranks stand."""
    return PanelTable(
        columns=["ranks", "state", "at"],
        rows=[[_ranks(group), group.state, group.place or group.note] for group in groups],
    )


def stacks_of(groups: Sequence[StackGroup]) -> str:
    """Return the stack of each group."""
    return "\n\n".join(_stack(group) for group in groups)


def stall_head(stall: StallEvent) -> str:
    """Return `No step for 12 s after step 40, which usually takes 0.3 s.`"""
    usual = "" if stall.usual_s is None else f", which usually takes {stall.usual_s:.3g} s"
    return f"No step for {stall.waited_s:.0f} s after step {stall.step:,}{usual}."


def _ranks(group: StackGroup) -> str:
    return ", ".join(map(str, group.ranks))


def _stack(group: StackGroup) -> str:
    lines = [f"ranks {_ranks(group)}: {group.state}", *(f"    {frame}" for frame in group.frames)]
    return "\n".join(lines)
