"""Shell completion of run ids, clusters and templates: reads names on disk, nothing else."""

from __future__ import annotations


def runs(incomplete: str) -> list[str]:
    """Return ids of runs, newest first, and `last`."""
    from llmops_kernel.services.names import run_names

    return [name for name in run_names() if name.startswith(incomplete)]


def clusters(incomplete: str) -> list[str]:
    """Return names of clusters that were started from this home folder."""
    from llmops_kernel.services.names import cluster_names

    return [name for name in cluster_names() if name.startswith(incomplete)]


def templates(incomplete: str) -> list[str]:
    """Return names of cluster templates, and YAML files."""
    from llmops_kernel.services.names import template_names

    return [name for name in template_names() if name.startswith(incomplete)]


def examples(incomplete: str) -> list[str]:
    """Return names of examples that `llmops init` can write."""
    from llmops_kernel.services.gallery import EXAMPLES

    return [name for name in EXAMPLES if name.startswith(incomplete)]
