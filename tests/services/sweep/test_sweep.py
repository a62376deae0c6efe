"""A sweep's trials are its runs: what it is checked for, what is best, and what goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel import api
from llmops_kernel.errors import ConfigError, RunNotFoundError, StoreError
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState
from llmops_kernel.services.backend import Backend, use
from llmops_kernel.services.search_space import Search
from llmops_kernel.services.sweep import best_of
from llmops_kernel.services.sweep_plan import SweepSpec, load_sweep, plan_sweep
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import call
from tests.services.run_table.stores import add
from tests.tiny_training import write_training


class Ready(LocalProvider):
    """Says that its cluster is ready, with as many GPUs as a test wants; there is none."""

    gpus = 0

    def names(self) -> tuple[str, ...]:
        return ("near",)

    def get(self, name: str) -> ClusterInfo:
        return ClusterInfo(
            name=name,
            provider="local",
            state=ClusterState.READY,
            num_cpus=8,
            num_gpus=self.gpus,
        )


@pytest.fixture
def provider() -> Ready:
    return Ready()


@pytest.fixture
def backend(home: Path, provider: Ready) -> Iterator[Backend]:
    backend = Backend(store=RunStore(), providers=lambda: [provider])
    with use(backend):
        yield backend


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_training(tmp_path / "workspace", "tiny", data={"eval": "rows.jsonl"})


def plan(config: Path, *words: str, **options: Any) -> SweepSpec:
    search = Search(words, random=options.pop("random", None))
    return plan_sweep(llmops.cluster("near"), config, search, **options)


@pytest.mark.usefixtures("backend")
def test_the_mistakes_of_all_trials_come_before_any_starts(config):
    with pytest.raises(ConfigError) as raised:
        plan(config, "method.r=0,8", "optimizer.learning_rate=1e-4,-3", "data.train=none.jsonl")
    text = str(raised.value)
    assert "method.r" in text
    assert "trials 1, 2 of 4" in text
    assert "learning_rate" in text
    assert "trials 2, 4 of 4" in text
    assert "none.jsonl" in text
    with pytest.raises(ConfigError, match="did you mean learning_rate"):
        plan(config, "optimizer.learning_rat=1,2")
    with pytest.raises(ConfigError, match="same configuration"):
        plan(config, "method.r=8,08")
    assert llmops.runs() == []
    with pytest.raises(RunNotFoundError):
        api.sweep()


@pytest.mark.usefixtures("backend")
def test_the_metric_is_the_held_out_loss_else_the_training_loss(config, tmp_path):
    spec = plan(config, "method.r=4,8")
    assert (spec.metric, spec.better) == ("eval_loss", "lower")
    without = write_training(tmp_path / "other", "plain")
    spec = plan(without, "method.r=4,8")
    assert (spec.metric, spec.better) == ("loss", "lower")
    assert "data.eval" in spec.about_metric
    spec = plan(config, "method.r=4,8", metric="eval_accuracy")
    assert spec.better == "higher"
    assert plan(config, "method.r=4,8", metric="x", better="lower").better == "lower"


@pytest.mark.usefixtures("backend")
def test_as_many_at_a_time_as_there_are_devices(config, provider):
    assert plan(config, "method.r=4,8").parallel == 1
    provider.gpus = 4
    assert plan(config, "method.r=4,8").parallel == 4
    wide = "training.global_batch_size=4"
    assert plan(config, "parallelism.num_workers=1,2", wide).parallel == 2
    assert plan(config, "method.r=4,8", parallel=3).parallel == 3


def trial(backend: Backend, spec: SweepSpec, number: int, **values: Any) -> Any:
    """Add the run of a trial, as a submission records it."""
    record = {"created_s": spec.created_s + number, "sweep": spec.id}
    return add(backend.store, f"t-{number}", overrides=spec.trials[number - 1], **record, **values)


def test_a_failed_or_nan_trial_is_never_the_best(backend, config):
    spec = plan(config, "method.r=2,4,8,16,32")
    trial(backend, spec, 1, eval_loss=0.5)
    trial(backend, spec, 2, eval_loss=0.1, state="FAILED")
    trial(backend, spec, 3, eval_loss=math.nan)
    trial(backend, spec, 4, eval_loss=0.25)
    sweep = api.sweep(spec.id[:12])
    assert [each.state for each in sweep.trials()] == [
        "SUCCEEDED",
        "FAILED",
        "SUCCEEDED",
        "SUCCEEDED",
        "WAITING",
    ]
    assert [each.value for each in sweep.trials()] == [0.5, 0.1, None, 0.25, None]
    assert sweep.best().id == "t-4"
    assert best_of(sweep.trials(), "higher").run == "t-1"
    assert "4 *" in repr(sweep)
    assert sweep.to_pandas().loc[4, "method.r"] == "16"


def test_runs_of_others_are_no_trials(backend, config):
    spec = plan(config, "method.r=2,4")
    add(backend.store, "other-1", created_s=spec.created_s + 1, overrides={"method.r": "2"})
    changed = {"overrides": {"method.r": "9"}, "sweep": spec.id}
    add(backend.store, "other-2", created_s=spec.created_s + 2, **changed)
    assert [each.run for each in api.sweep().trials()] == [None, None]
    assert api.sweep().best() is None


def test_the_config_may_change_after_the_start(backend, config):
    spec = plan(config, "method.r=2,4")
    config.write_text("nonsense")
    again = load_sweep(backend.store, "last")
    assert again == spec
    assert "tiny-llama" in again.config


def test_a_broken_file_of_a_sweep_is_named(backend, config):
    spec = plan(config, "method.r=2,4")
    (backend.store.root / "sweeps" / f"{spec.id}.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        load_sweep(backend.store, spec.id)


def test_the_command_shows_a_sweep_in_eighty_columns(backend, config, capsys, monkeypatch):
    spec = plan(config, "method.r=2,4", "optimizer.learning_rate=1e-4,1e-3")
    trial(backend, spec, 1, eval_loss=0.5)
    assert call("sweep", "show", backend=backend) == 0
    printed = capsys.readouterr().out
    assert "0.5000" in printed
    assert "t-1" in printed
    assert f"llmops sweep --resume {spec.id}" in printed
    assert call("sweep", backend=backend) == 2
    assert call("sweep", "method.r=8", backend=backend) == 2
    assert call("sweep", "x.train.yaml", "--resume", spec.id, backend=backend) == 2
    assert call("sweep", "show", "nothing", backend=backend) == 1
