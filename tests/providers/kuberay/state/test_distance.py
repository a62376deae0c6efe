"""A far API server: what a command says is right, it only takes longer."""

from __future__ import annotations

import pytest

from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.render.manifest import render
from llmops_kernel.providers.kuberay.route.tunnel import close_routes
from llmops_kernel.providers.protocol import ClusterAction
from tests.cli.conftest import call
from tests.providers.kuberay.conftest import Cloud
from tests.waiting import until


def fresh(cloud: Cloud) -> KubeRayProvider:
    """Return a provider that knows nothing, as in a command of its own process."""
    close_caches()
    close_routes()
    # Another stamp of the kubeconfig makes another client, without connections and measurements.
    cloud.kubeconfig.write_text(cloud.kubeconfig.read_text() + "\n")
    return KubeRayProvider(cloud.home)


def _create_unschedulable(cloud: Cloud) -> None:
    """Create a cluster that no node is large enough for.

    Not by `up`, which would look at it: this process must know nothing, as a new command.
    """
    group = {"name": "w", "cpus": "5000", "memory": "2Gi", "replicas": 1}
    template = cloud.template(worker_groups=[group], warm={"enabled": False})
    cloud.create(render(template, namespace=cloud.namespace).raycluster)
    until(lambda: _is_unschedulable(cloud))


def _is_unschedulable(cloud: Cloud) -> bool:
    with cloud.standin.client() as http:
        pods = http.get(f"/api/v1/namespaces/{cloud.namespace}/pods").json()["items"]
    return "Unschedulable" in str(pods)


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize("round_trip_s", [0.1, 0.4])
def test_one_look_from_far_away_is_right(cloud: Cloud, round_trip_s: float) -> None:
    cloud.provider.up(cloud.template())
    with cloud.standin.faulty("slow", seconds=round_trip_s):
        info = fresh(cloud).get("one")
        assert info.is_ready, info.message
        assert info.num_nodes == 1
        assert not info.actions[ClusterAction.SUSPEND]


@pytest.mark.usefixtures("farm")
def test_one_look_from_far_away_knows_why_a_cluster_waits(cloud: Cloud) -> None:
    _create_unschedulable(cloud)
    with cloud.standin.faulty("slow", seconds=0.3):
        info = fresh(cloud).get("one")
    assert any("cpu" in reason.message.lower() for reason in info.waiting), info.message


@pytest.mark.usefixtures("farm")
def test_one_look_at_a_slow_server_says_that_it_does_not_know_why(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never a wait without a word; and the command, whose user does not look again, is patient."""
    _create_unschedulable(cloud)
    with cloud.standin.faulty("slow", seconds=2.5, path="resourcequotas"):
        info = fresh(cloud).get("one")
        (reason,) = info.waiting
        assert (reason.kind, info.is_unasked) == ("unasked", True)
        assert reason.message == info.message
        assert reason.message.endswith("; what it waits for was not answered in time")
        assert reason.message.startswith(("The head pod", "0 of 1 workers"))
        assert reason.remedy == "ask again: `llmops status one`"
        fresh(cloud)
        assert call("status", "one") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "no node has 5000 cpu" in printed
    assert "not answered in time" not in printed


@pytest.mark.usefixtures("farm")
def test_the_nodes_do_not_wait_for_an_answer_that_never_comes(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    _create_unschedulable(cloud)
    with cloud.standin.faulty("slow", seconds=60.0, path="resourcequotas"):
        fresh(cloud)
        assert call("status", "one") == 1
    assert "no node has 5000 cpu" in " ".join(capsys.readouterr().out.split())
