"""A training that will not fit in memory: refused before it starts, or warned of in its journal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ClusterUnreachableError, ConfigError
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState, Connection
from llmops_kernel.services.backend import Backend, use
from llmops_kernel.services.models import prepare_model
from llmops_kernel.services.submission import will_wait
from llmops_kernel.store.store import RunStore
from tests.configs import training_config_from_dict
from tests.metrics.test_flops import CONFIGS

TRAINING = {
    "name": "large",
    "model": "Llama-2-70B",
    "data": {"train": "rows.jsonl", "max_length": 4096},
    "method": "full",
    "parallelism": {"strategy": "zero3", "num_workers": 8},
    "training": {"micro_batch_size": 4, "global_batch_size": 32, "max_steps": 2},
}
ON_SIXTEEN = [
    "parallelism.num_workers=128",
    "training.global_batch_size=512",
    "data.max_length=1024",
]
SMALL = [*ON_SIXTEEN, "parallelism.gradient_checkpointing=true"]


class Remote(LocalProvider):
    """Says that its cluster of H100s is ready; there is none."""

    shares_disk = False

    def names(self) -> tuple[str, ...]:
        return ("far",)

    def get(self, name: str) -> ClusterInfo:
        return ClusterInfo(name=name, provider="local", state=ClusterState.READY)

    def template(self, name: str) -> AnyTemplate | None:
        return load_cluster_template("gcp-h100")

    def connect(self, name: str) -> Connection:
        raise ClusterUnreachableError(f"{name} was asked", remedy="start it")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a training of a model of which there is nothing but config.json."""
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "Llama-2-70B").mkdir()
    (tmp_path / "Llama-2-70B" / "config.json").write_text(json.dumps(CONFIGS["Llama-2-70B"]))
    path = tmp_path / "large.train.yaml"
    path.write_text(json.dumps(TRAINING))
    return path


@pytest.fixture
def far(home: Path, config: Path) -> Iterator[None]:
    with use(Backend(store=RunStore(), providers=lambda: [Remote()])):
        yield


@pytest.mark.usefixtures("far")
def test_strict_refuses_before_the_cluster_is_asked(config: Path) -> None:
    cluster = llmops.cluster("far")
    with pytest.raises(ConfigError, match=r"140 GiB|H100") as refused:
        cluster.submit(config, strict=True)
    assert "no micro batch fits" in refused.value.remedy
    with pytest.raises(ConfigError) as refused:
        cluster.submit(config, overrides=ON_SIXTEEN, strict=True)
    assert "training.micro_batch_size=" in refused.value.remedy
    assert not list(RunStore().ids())


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(("changes", "strict"), [(SMALL, True), ([], False)])
def test_what_fits_and_what_is_only_warned_of_is_submitted(
    config: Path, changes: list[str], strict: bool
) -> None:
    with pytest.raises(ClusterUnreachableError, match="far was asked"):
        llmops.cluster("far").submit(config, overrides=changes, strict=strict)


@pytest.mark.usefixtures("far")
def test_a_model_that_is_not_here_is_not_fetched_to_be_planned(config: Path) -> None:
    changes = ["model.id=nobody/has-it"]
    with pytest.raises(ClusterUnreachableError, match="far was asked"):
        llmops.cluster("far").submit(config, overrides=changes, strict=True)


@pytest.mark.ray
def test_the_warning_is_in_the_run_s_journal(ray_cluster: ClusterInfo, config: Path) -> None:
    prepare_model("tiny-llama")  # Nothing is fetched for a plan.
    lines: list[str] = []
    cluster = llmops.cluster(ray_cluster.name)
    changes = {
        "model.id": "tiny-llama",
        "data.max_length": 2048,  # Of which the only row has few.
        "parallelism": {"strategy": "ddp", "num_workers": 1},
        "training": {"micro_batch_size": 4096, "global_batch_size": 4096, "max_steps": 1},
    }
    run = cluster.submit(config, overrides=changes, progress=lines.append)
    (warning,) = [one for one in run.view.warnings if "not fit" in one.message]
    assert f"Warning: {warning.message} Next: {warning.remedy}" in lines
    assert run.wait(120) == "SUCCEEDED", run.logs()


@pytest.mark.parametrize(
    ("cluster", "workers", "waits"),
    [
        ({"jobs_running": 0, "num_cpus": 2.0, "cpus_used": 2.0}, 1, False),
        ({"jobs_running": 1, "num_cpus": 2.0, "cpus_used": 1.0}, 1, False),
        ({"jobs_running": 1, "num_cpus": 2.0, "cpus_used": 1.0}, 2, True),
        ({"jobs_running": 1, "num_cpus": 2.0}, 1, False),
        ({"jobs_running": 2, "num_cpus": 2.0}, 1, True),
        ({"jobs_running": 1}, 1, True),
        ({"jobs_running": 2, "num_cpus": 32.0, "num_gpus": 2.0, "gpus_used": 2.0}, 1, True),
        ({"jobs_running": 2, "num_cpus": 32.0, "num_gpus": 2.0, "gpus_used": 1.0}, 1, False),
    ],
)
def test_a_run_waits_where_others_leave_too_little(
    cluster: dict[str, float], workers: int, waits: bool
) -> None:
    info = ClusterInfo.model_validate(
        {"name": "local", "provider": "local", "state": ClusterState.READY, **cluster}
    )
    values = {
        **TRAINING,
        "parallelism": {"strategy": "ddp", "num_workers": workers},
        "training": {"micro_batch_size": 1, "global_batch_size": 2, "max_steps": 2},
    }
    assert will_wait(info, training_config_from_dict(values)) is waits
