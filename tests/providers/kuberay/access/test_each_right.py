"""Each verb of both roles is missing once: what is said then, by everything that needs it.

`LLMOPS_WRITE_MATRIX=1 pytest tests/providers/kuberay/access/test_each_right.py` writes the table
of README.md here.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.api.rbac import RULES
from llmops_kernel.providers.kuberay.needs import needs_of
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.route.tunnel import close_routes
from llmops_kernel.providers.protocol import ClusterInfo, ClusterSize
from llmops_kernel.server.cluster_feed import ClustersFeed
from llmops_kernel.server.operations import Operations
from llmops_kernel.services import clusters
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.store.store import RunStore
from tests.k8s.standin.api.routing import parse
from tests.k8s.standin.process import PolicyRule, StandIn
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.life.test_denials import ROLE
from tests.providers.kuberay.life.test_guard import write_run
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.waiting import until

README = Path(__file__).with_name("README.md")
LONGEST_S = 5.0
SEPARATOR = " // "
_numbers = itertools.count(1)
Rules = list[PolicyRule]


@dataclass(frozen=True, order=True)
class Right:
    """A verb on a resource, of the Role or of the optional ClusterRole."""

    verb: str
    resource: str
    group: str = ""
    is_cluster_wide: bool = False

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{' (cluster-wide)' if self.is_cluster_wide else ''}"


def of_role() -> list[Right]:
    role = next(iter(yaml.safe_load_all(ROLE.read_text())))
    return [
        Right(verb, resource, rule["apiGroups"][0])
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def rules(rights: list[Right]) -> Rules:
    return [PolicyRule((one.group,), (one.resource,), (one.verb,)) for one in rights]


def cluster_wide(cloud: Cloud) -> list[Right]:
    needs = [need for need in needs_of(cloud.template()) if need.is_cluster_wide]
    return [Right(verb, n.resource, n.group, True) for n in needs for verb in n.verbs]


def as_user(cloud: Cloud, name: str, namespaced: Rules, wide: Rules) -> KubeRayProvider:
    """Log in as a user who has these rights, in a process that knows nothing yet."""
    cloud.standin.user(name, f"{name}-token", namespaced, cloud.namespace)
    if wide:
        cloud.standin.user(name, f"{name}-token", wide)
    cloud.login(f"{name}-token")
    close_caches()
    close_routes()
    return KubeRayProvider(cloud.home)


def without(cloud: Cloud, right: Right) -> KubeRayProvider:
    namespaced, wide = of_role(), cluster_wide(cloud)
    # The ClusterRole would grant `list pods` in the namespace as well.
    given = [one for one in wide if one != right] if right.is_cluster_wide else []
    left = [one for one in namespaced if one != right]
    return as_user(cloud, _name_of(right), rules(left), rules(given))


def _name_of(right: Right) -> str:
    return re.sub(r"\W+", "-", f"no-{right}").rstrip("-")


# What is done


def said(info: ClusterInfo) -> str:
    parts = [(info.message, info.remedy)]
    parts += [(reason.message, reason.remedy) for reason in info.waiting]
    parts += [(why, "") for why in info.actions.values() if why.startswith("Needs")]
    lines = [f"{message}. Try: {remedy}" if remedy else message for message, remedy in parts]
    return SEPARATOR.join(dict.fromkeys(filter(None, lines)))


def up(cloud: Cloud, provider: KubeRayProvider) -> str:
    provider.up(cloud.template(f"new-{next(_numbers)}"), wait=False)
    return ""


def wait(cloud: Cloud, provider: KubeRayProvider) -> str:
    provider.wait("one")
    return ""


def status(cloud: Cloud, provider: KubeRayProvider) -> str:
    return said(provider.get("one"))


def status_of_a_waiting_one(cloud: Cloud, provider: KubeRayProvider) -> str:
    return said(provider.get("waits"))


def side_bar(cloud: Cloud, provider: KubeRayProvider) -> str:
    feed = ClustersFeed(Operations(), providers=lambda: [provider], patience_s=4.0)
    try:
        with suppress(LLMOpsError):
            feed.poll()
        rows = feed.rows()
        if not rows:
            feed.poll()
        row = next(row for row in rows if row.name == "one")
        return SEPARATOR.join(filter(None, [row.info and said(row.info), row.stale, row.remedy]))
    finally:
        feed.close()


def submit(cloud: Cloud, provider: KubeRayProvider) -> str:
    cluster = Cluster("one", provider=provider)
    package = cloud.home / "package.zip"
    package.write_bytes(b"PK")
    cluster.ready_info()
    with cluster.client() as client:
        client.version()
        client.upload_package(package, name="_ray_pkg_a.zip")
        client.submit(entrypoint="true", submission_id="x-1", runtime_env={}, metadata={})
    return ""


def scale(cloud: Cloud, provider: KubeRayProvider) -> str:
    replicas = cloud.live()["spec"]["workerGroupSpecs"][0]["replicas"]
    size = ClusterSize(workers={"w": 5 - replicas})
    clusters.scale(Cluster("one", provider=provider), size, wait=False)
    return ""


def suspend(cloud: Cloud, provider: KubeRayProvider) -> str:
    clusters.stop(Cluster("one", provider=provider), "suspend")
    return ""


def resume(cloud: Cloud, provider: KubeRayProvider) -> str:
    clusters.resume(Cluster("rests", provider=provider), wait=False)
    return ""


def delete(cloud: Cloud, provider: KubeRayProvider) -> str:
    clusters.stop(Cluster("goes", provider=provider), "delete")
    return ""


ACTIONS: list[Callable[[Cloud, KubeRayProvider], str]] = [
    up, wait, status, status_of_a_waiting_one, side_bar, submit, scale, suspend, resume, delete,
]  # fmt: skip


# The stage


@pytest.fixture(scope="module")
def rows() -> Iterator[list[tuple[str, str, str]]]:
    found: list[tuple[str, str, str]] = []
    yield found
    if os.environ.get("LLMOPS_WRITE_MATRIX") and len({row[0] for row in found}) == len(ACTIONS):
        lines = [("what", "missing", "what is said"), ("---",) * 3, *found]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        text = re.sub(r"(?m)^\|.*\n", "", README.read_text()).rstrip("\n")
        README.write_text(f"{text}\n\n{table}")


@pytest.fixture
def stage(cloud: Cloud, tmp_path: Path) -> Callable[[str], None]:
    """Brings the clusters, as an administrator, to where an action finds them."""

    def set_up(action: str) -> None:
        cloud.login(cloud.standin.admin_token)
        close_caches()
        close_routes()
        if action == "status_of_a_waiting_one":
            group = {"name": "w", "cpus": "5000", "memory": "2Gi", "replicas": 1}
            cloud.provider.up(cloud.template("waits", worker_groups=[group]), wait=False)
            until(lambda: "5000" in cloud.provider.get("waits").message)
        elif action == "delete":
            cloud.provider.up(cloud.template("goes"), wait=False)
        elif action == "resume":
            cloud.provider.up(cloud.template("rests"), wait=False)
            cloud.provider.suspend("rests")
        elif action != "up":
            cloud.provider.up(cloud.template())

    return set_up


def used_by(cloud: Cloud, standin: StandIn) -> set[Right]:
    found = set()
    for key in standin.stats()["asked_by"].get("full", ()):
        verb, _, path = key.partition(" ")
        route = parse(path)
        if route is not None:
            wide = not route.namespace and route.plural != "namespaces"
            found.add(Right(verb, route.resource, route.group, wide))
    return found


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize("act", ACTIONS, ids=lambda act: act.__name__)
def test_what_is_missing_is_named_at_once(
    cloud: Cloud,
    ray: RayDashboard,
    stage: Callable[[str], None],
    rows: list[tuple[str, str, str]],
    tmp_path: Path,
    act: Callable[[Cloud, KubeRayProvider], str],
) -> None:
    what = act.__name__.replace("_", " ")
    stage(act.__name__)
    if act is suspend:
        write_run(RunStore(), cloud, ray, folder=tmp_path / "remote")
    provider = as_user(cloud, "full", rules(of_role()), rules(cluster_wide(cloud)))
    cloud.standin.stats(reset=True)
    act(cloud, provider)
    used = used_by(cloud, cloud.standin)
    for right in (*of_role(), *cluster_wide(cloud)):
        if right not in used:
            continue
        stage(act.__name__)
        provider = without(cloud, right)
        begun_s = time.monotonic()
        try:
            text = act(cloud, provider)
            outcome = "works"
        except LLMOpsError as error:
            text, outcome = f"{error.message}. Try: {error.remedy}", "refused"
        took_s = time.monotonic() - begun_s
        named = _names(right, text)
        rows.append((what, str(right), _cell(cloud, right, outcome, text if named else "")))
        if outcome == "refused":
            assert took_s < LONGEST_S, right
            assert named, (right, text)
        if named and not right.is_cluster_wide:
            assert f"rule {RULES[right.group, right.resource]}" in text, (right, text)


def _names(right: Right, text: str) -> bool:
    return bool(re.search(rf"\b{right.verb} (on )?{right.resource}\b", text))


def _cell(cloud: Cloud, right: Right, outcome: str, text: str) -> str:
    """Return it without what differs from one run of the tests to the next."""
    parts = [part for part in text.split(SEPARATOR) if _names(right, part)]
    text = SEPARATOR.join(parts).replace(_name_of(right), "ann").replace(cloud.namespace, "ml")
    text = text.replace(str(ROLE), "rbac.yaml").replace("cluster_templates/rbac.yaml", "rbac.yaml")
    return " ".join(f"{outcome}: {text}".replace("|", "/").split()) if text else outcome
