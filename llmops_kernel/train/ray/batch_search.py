"""Looks for the largest micro batch that fits, in worker groups that end with the search."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from llmops_kernel.config.counted import counted
from llmops_kernel.config.less_memory import micro_batch_sizes
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.inputs import installed_versions
from llmops_kernel.driver.report import DriverReport
from llmops_kernel.metrics.events import FailureEvent, RestartEvent
from llmops_kernel.store.files import find
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.store.paths import cache
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.context import StopRequestedError
from llmops_kernel.train.ray.failures import cause, is_code_failure, out_of_memory
from llmops_kernel.train.ray.worker import failure_key, micro_batch_key
from llmops_kernel.version import VERSION

# --- Which sizes to try ---


@dataclass(frozen=True)
class Climb:
    """What a worker group came to, which tried sizes in ascending order until memory ran out."""

    began: int
    fits: int | None
    """Largest size that fits; 0: the first does not, None: not even the steps before it do."""


def largest_fitting(
    sizes: Sequence[int], climb: Callable[[Sequence[int], int | None], Climb]
) -> int:
    """Return the largest of ascending sizes that fits; 0 if none does.

    `climb` gets the sizes that are left and the one to begin with, None for the first group, which
    chooses by the plan. A group that fits with its first size goes up and has the answer in the
    end; else the next begins in the middle of what is below: at most log2(sizes) + 2 groups.
    """
    left, begin = list(sizes), None
    while left:
        outcome = climb(left, begin)
        if outcome.fits is None:
            return 0
        if outcome.fits:
            return outcome.fits
        left = [size for size in left if size < outcome.began]
        begin = left[len(left) // 2] if left else None
    return 0


# --- The search of an attempt ---


class BatchSearch:
    """Finds what `micro_batch_size: auto` stands for, and stores it for the workers."""

    def __init__(
        self,
        spec: RunSpec,
        config: TrainingConfig,
        *,
        report: DriverReport,
        start: Callable[[str, dict[str, Any]], Any],
        is_stopped: Callable[[], bool],
    ) -> None:
        """`start` returns the trainer of a worker group by its name and what its workers get."""
        self._spec, self._config, self._report = spec, config, report
        self._start, self._is_stopped = start, is_stopped
        self._groups = self._lost = 0
        self._too_large: int | None = None
        """Smallest size with which memory ran out."""

    def run(self) -> None:
        """Search, or take the answer of an earlier run of the same settings and machines.

        Raises StopRequestedError, and what ended a worker group if it was not memory.
        """
        self._report.phase("batch_search", "begin")
        began_s, sizes = time.monotonic(), micro_batch_sizes(self._config)
        file = kept_file(self._config, self._spec)
        size, words = _kept(file, sizes), "found before"
        if size is None and len(sizes) == 1:
            size, words = sizes[0], "all rows of a step"
        elif size is None:
            size = largest_fitting(sizes, self._climb)
            time_s = time.monotonic() - began_s
            words = f"found in {time_s:.1f} s with {counted(self._groups, 'probe')}"
            if size and self._too_large:
                words += f"; {self._too_large} ran out of memory"
            if size:
                _keep(file, size, words)
        kv.put(micro_batch_key(self._spec), size or sizes[0])
        kv.put(_file_key(self._spec), str(file))
        if not size:  # What a run does that runs out of memory comes next.
            words = f"which ran out of memory when it was tried: {words.removeprefix('found ')}"
        detail = f"micro_batch_size={size or sizes[0]}, {words}"
        self._report.phase("batch_search", "end", detail=detail)

    def _climb(self, sizes: Sequence[int], begin: int | None) -> Climb:
        """Try sizes in a worker group; one that loses a worker is started anew."""
        self._groups += 1
        key = kv.key(self._spec.run_id, self._spec.attempt, f"probe/{self._groups}/")
        rows = micro_batch_sizes(self._config)[-1]
        values = {"key": key, "all": list(sizes), "begin": begin, "rows": rows}
        trainer, error = self._start(f"probe-{self._groups}", values), None
        try:
            trainer.fit()
        except Exception as raised:
            error = raised
        if self._is_stopped():
            raise StopRequestedError
        noted = kv.get(f"{key}noted")
        began, fits = noted or (begin or sizes[0], None)
        if error is None:
            return Climb(began, fits)
        events = [FailureEvent.model_validate(value) for value in kv.values(f"{key}failure/")]
        kills: Any = getattr(trainer, "kills", None)
        by_kernel = kills.happened if kills else lambda _: False
        if out_of_memory(error, events, is_kernel=by_kernel):
            self._too_large = min(size for size in sizes if size >= began and size > (fits or 0))
            return Climb(began, fits)
        if is_code_failure(error) or self._lost >= self._config.training.max_failures:
            for number, event in enumerate(events):
                name = f"{failure_key(self._spec)}{number}"
                kv.put(name, event.model_dump(mode="json"))
            raise error
        self._lost += 1
        left = self._config.training.max_failures - self._lost
        self._report.emit(RestartEvent(from_step=0, cause=cause(error), failures_left=left))
        return self._climb(sizes, begin)


# --- Answers that are kept ---

_SECTIONS = ("model", "method", "objective", "data", "parallelism", "performance")


def kept_file(config: TrainingConfig, spec: RunSpec) -> Path:
    """Return the file of the answer for these settings, on these machines and with this code."""
    values = config.model_dump(mode="json")
    decisive = {
        **{name: values[name] for name in _SECTIONS},
        "optimizer": config.optimizer.type,
        "training": {
            name: values["training"][name] for name in ("global_batch_size", "freeze", "train_only")
        },
        "training_arguments": values["training_arguments"],
        "files": _files(config, spec),
        "nodes": _nodes(),
        "versions": {**installed_versions(), "llmops-kernel": VERSION},
    }
    text = json.dumps(decisive, sort_keys=True, default=str)
    return cache() / "batch-sizes" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _files(config: TrainingConfig, spec: RunSpec) -> dict[str, Any]:
    """Return the digest of the hooks, and the sizes of the files of rows that are here."""
    link_assets(Path.cwd())  # As the workers do: a file that was submitted comes first.
    roots = [Path.cwd(), *([Path(spec.workspace_root)] if spec.workspace_root else [])]
    contents: dict[str, Any] = {}
    for source in config.data.sources:
        if file := find(source.path, roots):
            contents[source.path] = file.stat().st_size
    if config.hooks.file and (hooks := find(config.hooks.file, roots[:1])):
        contents[config.hooks.file] = hashlib.sha256(hooks.read_bytes()).hexdigest()
    return contents


def _nodes() -> list[Mapping[str, Any]]:
    """Return GPUs and processors of each node, and this one's memory in GiB."""
    import ray

    nodes = []
    for node in ray.nodes():
        has = node.get("Resources", {})
        kinds = sorted(name for name in has if name.startswith("accelerator_type:"))
        nodes.append({"GPU": has.get("GPU", 0), "CPU": has.get("CPU", 0), "kinds": kinds})
    memory = round(psutil.virtual_memory().total / 2**30)
    return [*sorted(nodes, key=json.dumps), {"memory": memory}]


def _kept(file: Path, sizes: Sequence[int]) -> int | None:
    try:
        size = json.loads(file.read_text())["micro_batch_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return size if size in sizes else None


def _keep(file: Path, size: int, words: str) -> None:
    # A cache that cannot be written only makes the next run search again.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"micro_batch_size": size, "words": words}))


def _file_key(spec: RunSpec) -> str:
    return kv.key(spec.run_id, spec.attempt, "micro-batch-file")


def correct(spec: RunSpec, changes: Mapping[str, Any]) -> None:
    """Replace a kept answer by the smaller one that a run goes on with after running out."""
    file, size = kv.get(_file_key(spec)), changes.get("training.micro_batch_size")
    if file and size:
        _keep(Path(file), size, "a larger one ran out of memory in a run")
