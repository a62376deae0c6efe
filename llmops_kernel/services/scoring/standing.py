"""Models that score runs and chats have loaded: in words, and how idle ones are ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import PurePosixPath

from llmops_kernel import score_env
from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.jobs import engines as jobs
from llmops_kernel.jobs.engines import EndedEngines
from llmops_kernel.providers.protocol import ClusterProvider, EngineInfo, Progress
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.score_env import make
from llmops_kernel.views.format import seconds


def end_idle(cluster: Cluster) -> EndedEngines:
    """End the engines that have no work. Engines of running jobs stay.

    Starts no job where none is loaded. Raises ClusterError.
    """
    if cluster.ready_info().engines == ():
        return EndedEngines()
    with cluster.client() as client:
        return jobs.end_idle_engines(client, store=cluster.backend.store)


def engine_line(engine: EngineInfo, *, now_s: float | None = None) -> str:
    """Return `SmolLM2-135M (vllm, replica 0): idle for 12 s, unloads in 8 s, GPU 0, ...`."""
    replica = "" if engine.replica is None else f"replica {engine.replica}"
    details = ", ".join(part for part in (engine.engine, replica) if part)
    facts = ", ".join(_facts(engine, time.time() if now_s is None else now_s))
    return f"{model_name(engine) or '–'}{f' ({details})' if details else ''}: {facts}"


def model_name(engine: EngineInfo) -> str:
    """Return a hub id as it is, of a folder its name."""
    is_folder = engine.model.startswith(("/", "~")) or "://" in engine.model
    return PurePosixPath(engine.model).name if is_folder else engine.model


def _facts(engine: EngineInfo, now_s: float) -> Iterator[str]:
    if engine.idle_since_s is not None:
        yield f"idle for {seconds(max(0.0, now_s - engine.idle_since_s))}"
    else:
        yield engine.state or "–"
    if engine.leaves_at_s is not None:
        yield f"unloads in {seconds(max(0.0, engine.leaves_at_s - now_s))}"
    if engine.gpu_ids:
        yield f"GPU {' '.join(engine.gpu_ids)}"
    elif engine.num_gpus is not None:
        yield f"{engine.num_gpus:g} GPUs" if engine.num_gpus else "on CPUs"
    if engine.node_id:
        yield f"node {engine.node_id[:8]}"
    if engine.run:
        yield f"{'last used' if engine.state == 'idle' else 'used'} by {engine.run}"


# --- vLLM's environment on this machine ---


_LOG = logging.getLogger(__name__)


def ensure_engine(
    config: ScoreConfig, provider: ClusterProvider, *, progress: Progress | None = None
) -> None:
    """Make the environment where vLLM was asked for, unless it is there or comes with the image.

    It takes minutes and 4 GB, so `auto` does not make it: it says that Transformers answers.

    Without `progress` its lines are logged as warnings, which
    Python prints: nobody waits minutes for something unknown. Raises MissingDependencyError.
    """
    engine = config.engine.type
    if not provider.shares_disk or not score_env.is_missing(engine):
        return
    if engine == "vllm":
        make(progress or _LOG.warning)
    elif progress is not None:
        progress(
            "Engine: Transformers. vLLM is faster, and has no environment here yet: `llmops"
            " score-env` makes it, in minutes and with 4 GB"
        )
