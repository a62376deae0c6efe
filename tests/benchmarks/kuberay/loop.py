"""Submit to first step through the Kubernetes API server's proxy, beside a local cluster.

    python -m tests.benchmarks.kuberay.loop [--runs 5]

API server, operator and kubelets are stand-ins; the tunnel, Ray with its token and the training are
real. Runs go to both clusters in turn, after
one that warms each. Pods do not see the client's run folder: their journal comes through the
tunnel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import llmops_kernel as llmops
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import ROOT, StandIn
from tests.k8s.support.user_namespace import of_this_process
from tests.tiny_training import write_training


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    runs = arguments.parse_args().runs
    folder = Path(tempfile.mkdtemp(prefix="ll-b-"))
    config = _workspace(folder)
    try:
        with StandIn() as standin, Farm(standin, mode="real", grace_s=1) as farm:
            namespace = standin.create_namespace("bench")
            kubeconfig = standin.kubeconfig(folder / "kubeconfig", namespace=namespace)
            os.environ["KUBECONFIG"] = str(kubeconfig)
            os.chdir(folder)
            homes = {"kuberay": of_this_process(folder) / "home", "local": folder / "home-local"}
            clusters: dict[str, llmops.Cluster] = {}
            try:
                for name, template in (("kuberay", "kind-cpu"), ("local", "local")):
                    _live_in(homes[name])
                    clusters[name] = llmops.up(template, wait=True)
                _report(_measured(clusters, homes, config, runs))
            finally:
                for name, cluster in clusters.items():
                    _live_in(homes[name])
                    cluster.delete(force=True)
            assert farm.processes() == []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _live_in(home: Path) -> None:
    os.environ["LLMOPS_HOME"] = str(home)


def _workspace(folder: Path) -> Path:
    shutil.copytree(ROOT / "cluster_templates", folder / "cluster_templates")
    return write_training(folder / "workspace", "bench", evaluation={"at_end": False})


def _measured(
    clusters: dict[str, llmops.Cluster], homes: dict[str, Path], config: Path, runs: int
) -> dict[str, list[float]]:
    """Seconds of each run but the first on each cluster, which converts and warms."""
    found: dict[str, list[float]] = {name: [] for name in clusters}
    for number in range(runs + 1):
        for name, cluster in clusters.items():
            _live_in(homes[name])
            run = cluster.submit(config)
            run.wait(300)
            seconds = run.view.submit_to_first_step_s
            assert seconds is not None, run.view
            reported = " ".join(
                f"{span.name} {span.duration_s:.2f}"
                for span in run.view.phases()
                if span.duration_s is not None
            )
            print(f"{name} {number}: {seconds:.2f} s ({reported})", flush=True)
            if number:
                found[name].append(seconds)
    return found


def _report(found: dict[str, list[float]]) -> None:
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"{name}: median {middle:.2f} s ({min(seconds):.2f} - {max(seconds):.2f})")
    ratio = statistics.median(
        far / near for far, near in zip(found["kuberay"], found["local"], strict=True)
    )
    print(f"kuberay / local: {ratio:.2f}")


if __name__ == "__main__":
    main()
