"""Prepares a benchmark: its config, its cluster and its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.config.models.score.config import ScoreConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds.reading import load
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.services.bench.follow import Report
from llmops_kernel.services.bench.loop import LoopBench
from llmops_kernel.services.bench.presets import Preset, preset_workspace
from llmops_kernel.services.bench.score import ScoreBench, Size
from llmops_kernel.services.clusters import Cluster, find, is_ready, read_template, up
from llmops_kernel.services.models import prepare_model
from llmops_kernel.services.scoring.standing import ensure_engine
from llmops_kernel.services.submission import changes_in

if TYPE_CHECKING:
    from llmops_kernel.config.models.section import RunConfig
    from llmops_kernel.views.bench_figures import Kind


@contextmanager
def config_file(config: Path | None, preset: Preset | None) -> Iterator[Path]:
    """Yield the config to submit: the given one, or that of a preset in a temporary folder."""
    if config is not None:
        yield config
        return
    with preset_workspace(preset or Preset.TINY) as path:
        yield path


def prepare_loop(
    path: Path,
    overrides: Sequence[str],
    *,
    cluster: str,
    kinds: Sequence[Kind],
    runs: int,
    report: Report,
    start: Callable[[str], object] | None = None,
    backend: Backend | None = None,
) -> LoopBench:
    """Check the config, then start the cluster and prepare the model where needed.

    `overrides` are the changes to a config, or the arguments of a script. `start` replaces the
    function that starts the cluster.
    """
    config = load(path, changes_in(overrides, path))
    backend = backend or current()
    access = _ready(cluster, config, report=report, start=start, backend=backend)
    return LoopBench(
        cluster=access,
        backend=backend,
        config=config,
        workspace=path.resolve().parent,
        kinds=kinds,
        runs=runs,
        report=report,
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
    start: Callable[[str], object] | None = None,
    backend: Backend | None = None,
) -> ScoreBench:
    """Check the score config, then start the cluster and prepare the model where needed.

    Raises ConfigError for another kind of config.
    """
    config = load(path, overrides)
    if not isinstance(config, ScoreConfig):
        raise ConfigError(f"{path.name} is not a score config", remedy="name a *.score.yaml file")
    backend = backend or current()
    access = _ready(cluster, config, report=report, start=start, backend=backend)
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


def _ready(
    name: str,
    config: RunConfig,
    *,
    report: Report,
    start: Callable[[str], object] | None,
    backend: Backend,
) -> Cluster:
    if not is_ready(name, backend=backend):
        (start or (lambda name: _start(name, report=report, backend=backend)))(name)
    if config.model_id:
        prepare_model(config.model_id, progress=report)
    return find(name, backend=backend)


def _start(name: str, *, report: Report, backend: Backend) -> None:
    template, path = read_template(name)
    up(template, path=path, wait=True, progress=report, backend=backend)
