"""Plans from a config, a model's config.json and a cluster template, as a user gives them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.reading.templates import shipped
from llmops_kernel.errors import ConfigError, ModelError
from llmops_kernel.hardware.accelerators import find
from llmops_kernel.hardware.precision import cpu_name
from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.metrics.events import StartEvent
from llmops_kernel.metrics.planned import MeasuredRun, PlannedRun
from llmops_kernel.planner.learning import device_key
from llmops_kernel.planner.memory import PARTS
from llmops_kernel.planner.speed import work
from llmops_kernel.services.plan import fastest, plan_config, plan_grid, plans, traced
from llmops_kernel.services.plan_inputs import Guess, usable_bytes
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.plan import facts as facts_of
from tests.metrics.test_flops import CONFIGS
from tests.planner.test_architecture import DEEPSEEK
from tests.server.runs import make_run

GIB = 2**30


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    """Return a folder with rows, and models of which there is nothing but config.json."""
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n')
    for name, config in CONFIGS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return tmp_path


def values(folder: Path, name: str = "Llama-2-70B", **sections: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "model": {"id": name, "attention": "flash_attention_2"},
        "data": {"train": "rows.jsonl", "max_length": 4096},
        "method": "full",
        "parallelism": {
            "strategy": "zero3", "num_workers": 32, "gradient_checkpointing": True,
        },
        "training": {"micro_batch_size": 4, "global_batch_size": 128, "max_steps": 1000},
    }  # fmt: skip
    return {**usual, **sections}


def test_a_plan_of_uber_s_setting(folder: Path) -> None:
    """Four machines of eight H100, from names alone: what a template and a config.json say."""
    planned = plan_config(values(folder), cluster="gcp-h100", workspace=folder)
    plan = planned.plan
    assert plan.hardware.name == "H100 SXM"
    assert plan.setup.workers_per_node == 8
    assert plan.fits is True
    assert plan.memory.optimizer == pytest.approx(25.9e9, rel=0.002)
    assert plan.speed is not None
    assert 0 < plan.speed.mfu < 0.5
    assert plan.speed.tokens == 128 * 4096
    cost = plan.cost
    assert cost is not None
    assert cost.time_s == pytest.approx(1000 * plan.speed.step_s)
    assert cost.device_hours == pytest.approx(32 * cost.time_s / 3600)
    assert cost.node_hours == pytest.approx(4 * cost.time_s / 3600)
    assert cost.kilowatt_hours == pytest.approx(0.7 * cost.device_hours)
    assert cost.money is None  # The template has no price.


def test_a_price_of_the_template_becomes_money(folder: Path) -> None:
    template = shipped()["gcp-h100"].read_text()
    priced = template.replace("    replicas: 2\n", "    replicas: 2\n    price: {node_hour: 88}\n")
    priced = priced.replace("  num_cpus: 0\n", "  num_cpus: 0\n  price: {node_hour: 1}\n")
    (folder / "priced.yaml").write_text(priced)
    planned = plan_config(values(folder), cluster=folder / "priced.yaml", workspace=folder)
    cost = planned.plan.cost
    assert cost is not None
    assert cost.money == pytest.approx(88 * cost.node_hours)
    assert cost.currency == "USD"


@pytest.mark.parametrize("cluster", [name for name in shipped() if name != "rbac"])
@pytest.mark.parametrize("model", CONFIGS)
def test_every_template_plans_every_model(folder: Path, cluster: str, model: str) -> None:
    planned = plan_config(values(folder, model), cluster=cluster, workspace=folder)
    shown = planned.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["memory_total"] == pytest.approx(sum(shown["memory"][part] for part in PARTS))
    # A number of tokens a second needs a peak, and a machine without one has a dash.
    assert (shown["speed"] is None) == (shown["device"] in ("", "CPU"))


def test_what_if_and_the_fastest(folder: Path) -> None:
    changes = [["parallelism.offload_optimizer=true"], ["training.micro_batch_size=1"]]
    found = plans(
        values(folder), [], changes, with_fastest=True, cluster="onprem-a100", workspace=folder
    )
    assert [one.name for one in found[:3]] == [
        "as it is", "offload_optimizer=true", "micro_batch_size=1",
    ]  # fmt: skip
    first, offloaded, small, best = found
    assert offloaded.plan.memory.total < first.plan.memory.total
    assert small.plan.memory.activations < first.plan.memory.activations
    assert best.plan.fits
    speeds = [one.plan.speed.tokens_per_second for one in found if one.plan.speed]
    assert best.plan.speed is not None
    assert best.plan.speed.tokens_per_second == max(speeds)
    assert fastest([small, best]) is best
    assert offloaded.plan.largest_micro_batch > first.plan.largest_micro_batch  # type: ignore[operator]


def test_the_largest_that_fits_and_divides_is_planned_for_auto(folder: Path) -> None:
    sizes = {}
    for size in ("auto", 1, 2, 4, 8):
        training = {"micro_batch_size": size, "global_batch_size": 64}
        config = values(folder, training=training, parallelism={"num_workers": 8})
        (planned,) = plans(config, [], cluster="onprem-a100", workspace=folder)
        sizes[size] = planned.plan
    auto = sizes.pop("auto")
    fitting = [size for size, plan in sizes.items() if plan.fits]
    assert auto.setup.micro_batch_size == max(fitting, default=1)
    assert auto.setup == sizes[auto.setup.micro_batch_size].setup
    assert any("micro_batch_size=auto" in words for words in auto.assumptions)


def test_a_grid_leaves_out_what_the_rules_refuse(folder: Path) -> None:
    variations = {
        "parallelism.strategy": ["ddp", "zero2", "zero3"],
        "parallelism.offload_params": [False, True],
    }
    found = plan_grid(values(folder), variations, cluster="gcp-h100", workspace=folder)
    assert len(found) == 4  # Only ZeRO-3 can have its weights elsewhere.
    assert found[3].name == "strategy=zero3, offload_params=True"
    rates = plan_grid(values(folder), {"optimizer.learning_rate": [0.001]}, workspace=folder)
    assert rates[0].name == "learning_rate=0.001"
    with pytest.raises(ConfigError):
        plan_grid(values(folder), {"parallelism.strategy": ["zero9"]}, workspace=folder)


@pytest.mark.parametrize(
    ("objective", "sequences", "has_head", "references"),
    [
        ("sft", 1, True, 0),
        ("dpo", 2, True, 1),
        ("orpo", 2, True, 0),
        ("reward", 2, False, 0),
        ({"type": "classify"}, 1, False, 0),
        ("embed", 2, False, 0),
    ],
)
def test_objectives(
    folder: Path, objective: Any, sequences: int, has_head: bool, references: int
) -> None:
    config = values(folder, objective=objective, method="lora")
    setup = plan_config(config, cluster="gcp-h100", workspace=folder).plan.setup
    assert (setup.sequences, setup.has_head, setup.references) == (sequences, has_head, references)
    # The model as it was is asked once before the first step, unless it is below an adapter.
    whole = {**config, "method": "full"}
    setup = plan_config(whole, cluster="gcp-h100", workspace=folder).plan.setup
    assert setup.references == 0


def test_assumptions_are_named_and_replaced_by_what_is_known(folder: Path) -> None:
    config = values(folder, training={"micro_batch_size": 4, "global_batch_size": 128})
    assumed = plan_config(config, cluster="gcp-h100", workspace=folder)
    assert assumed.plan.cost is None
    assert any("--mean-length" in text for text in assumed.plan.assumptions)
    guess = Guess(mean_length=1024, label_share=0.25, rows=12_800, network=400e9)
    known = plan_config(config, cluster="gcp-h100", guess=guess, workspace=folder).plan
    assert known.cost is not None
    assert known.cost.steps == 100
    assert not any("--" in text for text in known.assumptions)
    assert known.speed is not None
    assert assumed.plan.speed is not None
    assert known.speed.tokens == assumed.plan.speed.tokens / 4


SMALL: dict[str, Any] = {
    "model": {"id": "SmolLM2-135M", "attention": "sdpa"},
    "data": {"train": "rows.jsonl", "max_length": 128},
    "parallelism": {"strategy": "ddp", "num_workers": 1},
    "training": {"micro_batch_size": 2, "global_batch_size": 4, "max_steps": 10},
}


def add_run(number: int, planned: dict[str, Any], *, rate: float, peak: float | None) -> None:
    """Add a run on this processor to the store, which made so many tokens a second."""
    store = RunStore()
    run = make_run(store, f"past-{number}", ended=None, created_s=1000.0 + number)
    measured = MeasuredRun(steps=9, step_time_s=512 / rate, tokens_per_second=rate)
    event = StartEvent(
        total_steps=10, num_workers=1, global_batch_size=4, device=cpu_name(), dtype="float32",
        peak_flops=peak, planned=PlannedRun(**planned, measured=measured),
    )  # fmt: skip
    journal = JournalWriter([run / "journal"], stream="1-worker-2", attempt=1)
    journal.emit(event)
    journal.close()


def test_a_plan_learns_from_the_runs_of_the_store(folder: Path) -> None:
    """Four runs of this config made 100, 110, 90 and 100 tokens a second on this processor."""
    config = values(folder, **SMALL)
    before = plan_config(config, workspace=folder).plan
    assert before.speed is None  # Nobody knows the peak of a CPU.
    assert before.learned is None
    threads = cores_each(1)
    facts = {
        "family": "llama", "attention": "sdpa", "strategy": "ddp", "method": "full",
        "device": device_key(cpu_name(), dtype="float32", threads=threads),
        "tokens": 512.0, "memory": {},
    }  # fmt: skip
    done = asdict(work(before.setup))
    for number, rate in enumerate((100.0, 110.0, 90.0, 100.0)):
        add_run(number, {**facts, "work": done}, rate=rate, peak=2e11)
    add_run(8, {**facts, "work": {"steps_of_a_later_release": 1.0}}, rate=1.0, peak=None)
    add_run(9, {**facts, "work": done, "device": "another"}, rate=1.0, peak=None)
    planned = plan_config(config, workspace=folder)
    learned, speed = planned.plan.learned, planned.plan.speed
    assert learned is not None
    assert speed is not None
    assert learned.speed.runs == 4
    # Each from those before it: 100 for 110, then about 105 for 90 and 100 for 100.
    assert learned.speed.median == pytest.approx(0.09, abs=0.02)
    assert speed.tokens_per_second == pytest.approx(100, rel=0.03)
    assert speed.mfu == pytest.approx(speed.required_flops / speed.step_s / 2e11)
    assert planned.plan.cost is not None
    shown = planned.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert facts_of(shown)["learned"].startswith("speed from 4 runs on this device: median error")
    assert not any("dense peak" in text for text in planned.plan.assumptions)
    two = {**SMALL, "parallelism": {"strategy": "ddp", "num_workers": 2}}
    other = plan_config(values(folder, **two), workspace=folder).plan
    is_same = cores_each(2) == threads  # Two workers share the cores, if there are several.
    assert (other.learned is not None) == is_same


def test_another_device_and_none(folder: Path) -> None:
    h200 = plan_config(
        values(folder), cluster="gcp-h100", guess=Guess(device="H200 SXM"), workspace=folder
    )
    assert h200.plan.hardware.memory_bytes == pytest.approx(139 * GIB, rel=0.01)
    cpu = plan_config(
        values(folder), cluster="gcp-h100", guess=Guess(device="cpu"), workspace=folder
    )
    assert cpu.plan.speed is None
    assert cpu.plan.memory.overhead == 0
    with pytest.raises(ConfigError, match="No accelerator is called"):
        plan_config(values(folder), guess=Guess(device="Z9000"), workspace=folder)


@pytest.mark.parametrize(
    ("name", "gib"), [("NVIDIA H100 80GB HBM3", 79.6), ("NVIDIA H200", 140.4), ("NVIDIA L4", 22.5)]
)
def test_usable_memory_is_what_devices_report(name: str, gib: float) -> None:
    accelerator = find(name)
    assert accelerator is not None
    usable = usable_bytes(accelerator)
    assert usable is not None
    assert gib * 0.98 < usable / GIB <= gib


def test_models_that_are_not_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mamba").mkdir()
    (folder / "mamba" / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(ModelError, match="family mamba"):
        plan_config(values(folder, "mamba"), workspace=folder)
    (folder / "mamba" / "config.json").write_text("no JSON")
    with pytest.raises(ModelError, match="cannot be read") as caught:
        plan_config(values(folder, "mamba"), workspace=folder)
    assert "--model-config" in caught.value.remedy
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"config\.json of nobody/nothing"):
        plan_config(values(folder, "nobody/nothing"), workspace=folder)
    (folder / "x.score.yaml").write_text("model: tiny-llama\ninput: rows.jsonl\nprompt: '{text}'\n")
    with pytest.raises(ConfigError, match="not a training config"):
        plan_config(folder / "x.score.yaml", workspace=folder)


def test_the_planner_alone_imports_nothing_heavy(folder: Path) -> None:
    """DeepSeek-V3, 61 layers of 256 experts: in a process that imports it for this."""
    config = {
        **DEEPSEEK, "hidden_size": 7168, "intermediate_size": 18432, "vocab_size": 129280,
        "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    }  # fmt: skip
    program = (
        "import json, sys\n"
        "from llmops_kernel.planner.architecture import Architecture\n"
        "from llmops_kernel.planner.plan import Hardware, plan\n"
        "from llmops_kernel.planner.setup import Setup\n"
        "model = Architecture.from_config(json.load(sys.stdin))\n"
        "setup = Setup(architecture=model, strategy='zero3', num_workers=256, length=4096)\n"
        "found = plan(setup, Hardware(memory_bytes=80e9))\n"
        "heavy = [name for name in ('torch', 'pydantic', 'yaml', 'ray') if name in sys.modules]\n"
        "print(json.dumps([found.to_dict()['params'], heavy]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        check=True,
    )
    params, heavy = json.loads(done.stdout)
    assert params / 1e9 == pytest.approx(671, abs=0.5)
    assert heavy == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["full", "lora"])
def test_two_estimates_agree(folder: Path, method: str) -> None:
    """The formulas, and the real modules on tensors without memory."""
    pytest.importorskip("torch")
    small = {**CONFIGS["SmolLM2-135M"], "num_hidden_layers": 4, "vocab_size": 8000}
    (folder / "small").mkdir()
    (folder / "small" / "config.json").write_text(json.dumps(small))
    config = values(
        folder, method=method, model={"id": "small"},
        data={"train": "rows.jsonl", "max_length": 128},
    )  # fmt: skip
    found = traced(config, workspace=folder)
    assert abs(found.difference) < 0.03
    assert found.traced <= found.reserved < 1.5 * found.traced
