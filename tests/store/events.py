"""Short ways to write events."""

from __future__ import annotations

from llmops_kernel.metrics.events import (
    EndEvent,
    EvalEvent,
    PhaseEvent,
    QueueEvent,
    RestartEvent,
    StartEvent,
    StepEvent,
)


def step(number: int, *, stream: str = "1-worker-1", seq: int = 0, **fields) -> StepEvent:
    values = {"loss": 1.0 / number, "step_time_s": 0.1, "data_wait_s": 0.0, "compute_s": 0.1}
    values |= {"tokens": 100, "tokens_per_second": 1000.0, "mfu": 0.5} | fields
    values.setdefault("time_s", 100.0 + number)
    return StepEvent(step=number, seq=seq or number, **_place(stream), **values)


def steps(first: int, last: int, *, start_s: float = 100.0, **fields) -> list[StepEvent]:
    return [step(n, time_s=start_s + n, seq=n + 1, **fields) for n in range(first, last + 1)]


def start(*, stream: str = "1-worker-1", seq: int = 1, total: int = 20, **fields) -> StartEvent:
    fields = {
        "num_workers": 1,
        "global_batch_size": 8,
        "device": "cpu",
        "dtype": "float32",
    } | fields
    return StartEvent(total_steps=total, seq=seq, **_place(stream), **fields)


def phase(name: str, state: str, time_s: float, *, stream: str, seq: int, detail: str = ""):
    return PhaseEvent(
        name=name, state=state, time_s=time_s, seq=seq, detail=detail, **_place(stream)
    )


def restart(from_step: int, *, time_s: float, seq: int, stream: str = "1-driver") -> RestartEvent:
    return RestartEvent(
        from_step=from_step, cause="worker died", time_s=time_s, seq=seq, **_place(stream)
    )


def queue(
    state: str, time_s: float, *, stream: str = "1-driver", seq: int = 101, **fields
) -> QueueEvent:
    return QueueEvent(state=state, time_s=time_s, seq=seq, **_place(stream), **fields)


def evaluation(number: int, *, stream: str, seq: int, time_s: float, **metrics) -> EvalEvent:
    return EvalEvent(
        step=number,
        metrics=metrics,
        num_rows=4,
        duration_s=1,
        seq=seq,
        time_s=time_s,
        **_place(stream),
    )


def end(state: str, *, stream: str = "1-driver", seq: int = 99, time_s: float = 999.0, **fields):
    return EndEvent(state=state, seq=seq, time_s=time_s, **_place(stream), **fields)


def _place(stream: str) -> dict[str, object]:
    return {"stream": stream, "attempt": int(stream.split("-")[0])}
