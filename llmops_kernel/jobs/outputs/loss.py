"""Finds outputs that are on a cluster's nodes only, for warnings at submit and before a loss."""

from __future__ import annotations

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.history import is_older
from llmops_kernel.providers.capabilities import SupportsOutputStorage
from llmops_kernel.providers.protocol import ClusterProvider
from llmops_kernel.store.outputs.copies import only_on_cluster, output_events
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import format as fmt
from llmops_kernel.views.summary import list_runs


def about_outputs(provider: ClusterProvider, cluster: str) -> str:
    """Return what becomes of a run's output on a cluster that keeps none.

    Empty if all are kept, and if that cannot be known now: it must not end a submission.
    """
    if provider.shares_disk or not isinstance(provider, SupportsOutputStorage):
        return ""
    try:
        storage = provider.output_storage(cluster)
    except LLMOpsError:
        return ""
    if storage.runs is not None:
        return ""
    copied = f"Outputs of up to {fmt.byte_size(storage.copied_bytes)} are copied to the run folder;"
    removes = ", or its autoscaler removes their pod," if storage.pods_go_when_idle else ","
    return (
        f"{copied if storage.copied_bytes else 'No output is copied to the run folder;'} others are"
        f" lost when cluster {cluster} is suspended or deleted{removes} as its template has no"
        " storage.runs"
    )


def only_copies(store: RunStore, cluster: str, *, since_s: float | None = None) -> tuple[str, ...]:
    """Return the outputs that end with the cluster, one line each.

    Outputs that are small enough are left out: they are copied before. `since_s`: runs that were
    submitted earlier are skipped, as they were on an earlier cluster of that name.
    """
    lines = []
    for spelling in dict.fromkeys((cluster, cluster.rpartition("/")[2])):
        for run in list_runs(store, cluster=spelling, hidden=True):
            if is_older(store, run.run_id, since_s):
                continue
            for event in only_on_cluster(output_events(store.folder(run.run_id))):
                if not event.files:
                    label, size = event.what.replace("_", " "), fmt.byte_size(event.size_bytes)
                    lines.append(f"the only copy of the {label} of run {run.run_id} ({size})")
    return tuple(lines)
