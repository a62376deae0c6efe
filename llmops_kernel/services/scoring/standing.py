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


def engine_line(one: EngineInfo, *, now_s: float | None = None) -> str:
    """Return `SmolLM2-135M (vllm, replica 0): idle for 12 s, leaves in 8 s, GPU 0, ...`."""
    replica = "" if one.replica is None else f"replica {one.replica}"
    about = ", ".join(part for part in (one.engine, replica) if part)
    facts = ", ".join(_facts(one, time.time() if now_s is None else now_s))
    return f"{model_name(one) or '–'}{f' ({about})' if about else ''}: {facts}"


def model_name(one: EngineInfo) -> str:
    """Return a hub id as it is, of a folder its name."""
    is_folder = one.model.startswith(("/", "~")) or "://" in one.model
    return PurePosixPath(one.model).name if is_folder else one.model


def _facts(one: EngineInfo, now_s: float) -> Iterator[str]:
    if one.idle_since_s is not None:
        yield f"idle for {seconds(max(0.0, now_s - one.idle_since_s))}"
    else:
        yield one.state or "–"
    if one.leaves_at_s is not None:
        yield f"leaves in {seconds(max(0.0, one.leaves_at_s - now_s))}"
    if one.gpu_ids:
        yield f"GPU {' '.join(one.gpu_ids)}"
    elif one.num_gpus is not None:
        yield f"{one.num_gpus:g} GPUs" if one.num_gpus else "on CPUs"
    if one.node_id:
        yield f"node {one.node_id[:8]}"
    if one.run:
        yield f"{'last used' if one.state == 'idle' else 'used'} by {one.run}"


# --- Makes vLLM's environment on this machine where a score run may use it ---


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
