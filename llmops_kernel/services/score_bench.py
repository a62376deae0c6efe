"""Scores the same rows with each batch size and number of replicas; reads the rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import ConfigError, RunFailedError
from llmops_kernel.kinds.reading import load
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.services.bench import Report, Start, follow, ready_cluster
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.runs import Run
from llmops_kernel.services.scoring.standing import ensure_engine
from llmops_kernel.services.submission import from_config, submit
from llmops_kernel.store.files import write_whole
from llmops_kernel.store.paths import home
from llmops_kernel.views import format as fmt
from llmops_kernel.views.score_bench import ScoreFigures, ScoreMeasured, ScoreSetting, points_of

if TYPE_CHECKING:
    from llmops_kernel.store.journal.score_view import ScoreView

_KEEP_S = 15.0
"""How long an engine waits for the next run of its size. The next size has an engine of its own:
the batch size decides how it is loaded, and two of them may not fit beside each other."""
_PARTS_A_REPLICA = 2
_RATES = ("output_tokens_per_second", "prompt_tokens_per_second", "rows_per_second")


@dataclass(frozen=True, kw_only=True)
class Size:
    """What is varied."""

    replicas: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One of the benchmark's runs."""

    size: Size
    number: int | None
    """From 1, over all sizes; None for the run that loads the engine and is not counted."""


def sizes_of(replicas: Sequence[int], batch_sizes: Sequence[int]) -> list[Size]:
    """Return all sizes, in rising order, each once."""
    return [
        Size(replicas=copies, batch_size=size)
        for copies in sorted(set(replicas))
        for size in sorted(set(batch_sizes))
    ]


def order(sizes: Sequence[Size], *, runs: int) -> Iterator[Turn]:
    """Yield, size by size, a run that loads the engine and then those that are counted.

    Sizes do not alternate: each change loads the model again.
    """
    for place, size in enumerate(sizes):
        yield Turn(size=size, number=None)
        for number in range(runs):
            yield Turn(size=size, number=place * runs + number + 1)


@dataclass(kw_only=True)
class ScoreBench:
    """Submits and measures; `measured` keeps what it has when it is interrupted."""

    cluster: Cluster
    backend: Backend
    config: ScoreConfig
    workspace: Path
    sizes: Sequence[Size]
    runs: int
    """Counted runs of each size."""
    rows: int
    report: Report
    measured: list[ScoreMeasured] = field(default_factory=list)
    _setting: ScoreSetting | None = None

    def run(self) -> None:
        """Run it. Raises RunFailedError for the first run that fails, with its remedy."""
        for turn in order(self.sizes, runs=self.runs):
            self._one(turn)

    def figures(self) -> ScoreFigures | None:
        """Return what was measured so far; None before the first counted run."""
        if self._setting is None or not self.measured:
            return None
        return ScoreFigures(setting=self._setting, points=points_of(self.measured))

    def _one(self, turn: Turn) -> None:
        run = self._submit(turn.size)
        follow(run, self.cluster, self.report)
        found = read(run, turn.size)
        if turn.number is not None:
            self.measured.append(found)
        elif self._setting is None:
            self._setting = self._what(run)
        self.report(self._line(turn, found))

    def _submit(self, size: Size) -> Run:
        submission = from_config(
            self.config, workspace=self.workspace, settings=changes(size, rows=self.rows)
        )
        record = submit(self.cluster, replace(submission, hidden=True))
        return Run(self.backend, record.run_id, provider=self.cluster.provider)

    def _line(self, turn: Turn, found: ScoreMeasured) -> str:
        number = turn.number
        label = "loading" if number is None else f"{number}/{len(self.sizes) * self.runs}"
        size = turn.size
        rate = f"{fmt.number(found.output_tokens_per_second):>6} tokens/s"
        what = f"{size.replicas} x batch {size.batch_size:<4}"
        return f"{label:>7}  {what} {rate if number else 'not counted':<16} {found.run_id}"

    def _what(self, run: Run) -> ScoreSetting:
        info, config = self.cluster.info, self.config
        view = _view(run)
        return ScoreSetting(
            name=config.name,
            model=str(run.record.config["model"]["id"]),
            engine=config.engine.type,
            rows=(view.progress.total if view.progress else None) or self.rows,
            max_tokens=config.sampling.max_tokens,
            tensor_parallel=config.engine.tensor_parallel,
            cluster=self.cluster.name,
            num_cpus=info.num_cpus,
            num_gpus=info.num_gpus,
            time=datetime.now(UTC),
        )


def prepare_score(
    path: Path,
    overrides: Sequence[str],
    *,
    cluster: str,
    sizes: Sequence[Size],
    runs: int,
    rows: int,
    report: Report,
    start: Start | None = None,
) -> ScoreBench:
    """Check the score config, then start the cluster and prepare the model where needed.

    Raises ConfigError for another kind of config.
    """
    config = load(path, overrides)
    if not isinstance(config, ScoreConfig):
        raise ConfigError(f"{path.name} is not a score config", remedy="name a *.score.yaml file")
    backend = current()
    access = ready_cluster(cluster, config, report=report, start=start, backend=backend)
    ensure_engine(config, access.provider, progress=report)
    return ScoreBench(
        cluster=access,
        backend=backend,
        config=config,
        workspace=path.resolve().parent,
        sizes=sizes,
        runs=runs,
        rows=rows,
        report=report,
    )


def changes(size: Size, *, rows: int) -> dict[str, Any]:
    """Return the changes of the config for a run of this size.

    Its output goes into the run's own folder: the user's must not change.
    """
    parts = size.replicas * _PARTS_A_REPLICA
    return {
        "engine.batch_size": size.batch_size,
        "engine.replicas": size.replicas,
        "engine.max_replicas": size.replicas,
        "engine.keep_s": _KEEP_S,
        "input.limit": rows,
        "output.url": "",
        # A replica works on two parts at once: all its rows are under way from the start.
        "output.part_rows": max(1, math.ceil(rows / parts)),
        "evaluation.judge.model": "",
    }


def read(run: Run, size: Size) -> ScoreMeasured:
    """Return the rates in the journal of an ended run. Raises RunFailedError if it failed."""
    view = _view(run)
    rates = {name: view.value(name) for name in _RATES}
    if view.state != "SUCCEEDED" or None in rates.values():
        raise RunFailedError(
            f"Run {run.id} of the benchmark (batch size {size.batch_size}) {view.state}:"
            f" {view.message or 'no rates were reported'}",
            remedy=view.remedy or f"llmops show {run.id}",
        )
    return ScoreMeasured(
        replicas=size.replicas, batch_size=size.batch_size, run_id=run.id, **cast("Any", rates)
    )


def _view(run: Run) -> ScoreView:
    return cast("ScoreView", run.view)


def save(figures: ScoreFigures) -> Path:
    """Write the result into the home folder, where `newest` finds it; return the file."""
    setting = figures.setting
    path = _folder() / f"score-{setting.time:%Y%m%d-%H%M%S}-{setting.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, figures.model_dump_json(indent=2).encode())
    return path


def saved(path: Path | None = None) -> ScoreFigures:
    """Read a result, the newest without a path. Raises ConfigError."""
    found = path or max(_folder().glob("score-*.json"), default=None)
    if found is None:
        raise ConfigError(
            "No scoring was measured yet", remedy="run: llmops bench score FILE.score.yaml"
        )
    try:
        return ScoreFigures.model_validate_json(found.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{found} is not a result of llmops bench score: {str(error).splitlines()[0]}",
            remedy="name a file that llmops bench score has written",
        ) from error


def _folder() -> Path:
    return home() / "benchmarks"
