"""Report the progress of a training script: `from llmops_kernel import track`.

Inside a run that was started by `llmops submit train.py` the reports become the run's journal:
live charts, MFU, stop with a checkpoint, retry. Outside a run every function returns at once
and does nothing, so the same script runs with plain `python` or `torchrun`.

Call the functions on every worker, at the same point of the script: only rank 0 reports, and all
workers agree when to stop.

Tokens are those trained on since the last call of `step`, padding not counted. With one worker
`tokens=` is enough. With several, one worker's tokens do not say what the others did: pass
`tokens_per_worker=` where every worker has the same number, or `total_tokens=` with the sum over
all workers. `tokens=` alone is then shown as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.track import session

if TYPE_CHECKING:
    from llmops_kernel.track.tracker import Number

__all__ = [
    "active",
    "checkpoint",
    "evaluation",
    "log",
    "resume_checkpoint",
    "should_stop",
    "start",
    "step",
]


def active() -> bool:
    """Return True inside a run."""
    return session.tracker() is not None


def start(
    *,
    total_steps: int | None = None,
    first_step: int | None = None,
    model: Any = None,
    dtype: str | None = None,
    global_batch_size: int | None = None,
    sequence_length: int | None = None,
) -> None:
    """Report what is known before the first step; optional, and may be called again.

    `total_steps` makes progress and the remaining time known. `dtype` ("bfloat16") is what the
    matrix products are computed in; default the dtype of the model's weights. `global_batch_size`
    is in sequences, all workers together.
    """
    tracker = session.tracker()
    if tracker is not None:
        tracker.start(
            total_steps=total_steps,
            first_step=first_step,
            model=model,
            dtype=dtype,
            global_batch_size=global_batch_size,
            sequence_length=sequence_length,
        )


def step(
    *,
    loss: Number | None = None,
    tokens: int | None = None,
    tokens_per_worker: int | None = None,
    total_tokens: int | None = None,
    model: Any = None,
    learning_rate: float | None = None,
    grad_norm: Number | None = None,
    step: int | None = None,
    epoch: float | None = None,
    sequence_length: int | None = None,
    data_wait_s: float | None = None,
    flops: Number | None = None,
) -> None:
    """Report that an optimizer step has ended.

    `step`: its number; default one more than the last. `loss`, `grad_norm`: a number or a tensor
    of one element. `tokens`, `tokens_per_worker`, `total_tokens`: see the module. `model`: FLOPs
    and MFU are computed from it (a Transformers model, also inside DistributedDataParallel,
    DeepSpeed or PEFT); where no table knows the architecture its modules are counted, unless the
    weights are sharded. Where that cannot be done they stay unknown. With `sequence_length=` the
    FLOPs of attention are counted, else those of the weights alone. `flops`: what the model needs,
    all workers together, since the last call of `step`, where the script knows it better: what is
    padded or computed twice does not count.
    """
    tracker = session.tracker()
    if tracker is not None:
        tracker.step(
            loss=loss,
            tokens=tokens,
            tokens_per_worker=tokens_per_worker,
            total_tokens=total_tokens,
            model=model,
            learning_rate=learning_rate,
            grad_norm=grad_norm,
            step=step,
            epoch=epoch,
            sequence_length=sequence_length,
            data_wait_s=data_wait_s,
            flops=flops,
        )


def log(**numbers: Number) -> None:
    """Report further numbers of the next step: `track.log(reward=1.2)`, then `track.step(...)`.

    Each name becomes a chart and a column of `run.metrics()`. A number or a tensor of one
    element; what is reported twice before a step counts once, with its last value. `loss`,
    `learning_rate`, `grad_norm`, `epoch` and `data_wait_s` are those of `step`.

    Works in the hooks `callbacks` and `compute_metrics` of a training config too, where the loop
    reports the steps. The numbers of rank 0 are reported: reduce what is to be of all workers.
    """
    tracker = session.tracker()
    if tracker is not None:
        tracker.log(numbers)


def evaluation(
    metrics: Mapping[str, Number],
    *,
    step: int | None = None,
    num_rows: int = 0,
    duration_s: float | None = None,
    samples: Iterable[Mapping[str, str]] = (),
) -> None:
    """Report the metrics of an evaluation at a step (default the last one).

    `samples`: a few of `{"prompt", "prediction", "reference"}`.
    """
    tracker = session.tracker()
    if tracker is not None:
        tracker.evaluation(
            metrics, step=step, num_rows=num_rows, duration_s=duration_s, samples=samples
        )


def checkpoint(path: str | Path, *, step: int | None = None, keep: int = 2) -> None:
    """Report that a checkpoint (a file or a folder) has been written completely.

    Rank 0 copies it into the run's folder, where `resume_checkpoint` of a retry finds it; the
    newest `keep` copies are kept.
    """
    tracker = session.tracker()
    if tracker is not None:
        tracker.checkpoint(Path(path), step=step, keep=keep)


def resume_checkpoint() -> Path | None:
    """Return the newest checkpoint of this run to resume from.

    None in a first attempt, without a checkpoint and outside a run. What `checkpoint` was given
    as a file is returned as a file, a folder as a folder. On several workers of Ray rank 0 chooses
    and each worker checks that it sees the same files: call it on all workers, or on rank 0 only.
    """
    tracker = session.tracker()
    return None if tracker is None else tracker.resume_checkpoint()


def should_stop(*, step: int | None = None) -> bool:
    """Return True when the user has requested a stop: save a checkpoint and exit.

    `step` is the one just made, where it is not reported yet (default the last reported).
    Call it once a step on every worker. All of them get True in the same call, provided that
    they run in step with each other, as the gradient exchange makes them.
    """
    tracker = session.tracker()
    return tracker is not None and tracker.should_stop(step=step)
