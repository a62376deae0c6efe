"""The route that plans a config: what it answers and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.metrics.test_flops import CONFIGS
from tests.server.conftest import Fetch
from tests.server.test_config_routes import post, reported

TEXT = """model: llama
method: full
data: {train: rows.jsonl, max_length: 4096}
parallelism: {strategy: zero3, num_workers: 16, gradient_checkpointing: true}
training: {micro_batch_size: 1, global_batch_size: 64, max_steps: 100}
"""
BODY = {"path": "sub/x.train.yaml", "text": TEXT}


@pytest.fixture(autouse=True)
def folder(jp_root_dir: Path) -> Path:
    place = jp_root_dir / "sub"
    (place / "llama").mkdir(parents=True)
    (place / "rows.jsonl").write_text('{"text": "one"}\n')
    (place / "llama" / "config.json").write_text(json.dumps(CONFIGS["Llama-2-7B"]))
    return place


async def test_a_text_that_is_not_saved_is_planned_for_a_template(api: Fetch) -> None:
    plan = reported(await post(api, "configs/plan", **BODY, cluster="gcp-h100"))
    assert plan["device"] == "16 x H100 SXM"
    assert plan["fits"] is True
    assert sum(part["share"] for part in plan["parts"]) == pytest.approx(1)
    facts = {fact["label"]: fact for fact in plan["facts"]}
    assert facts["memory"]["level"] == "plain"
    assert "6.74 billion weights" in facts["model"]["text"]
    assert "100 steps:" in facts["cost"]["text"]


async def test_what_does_not_fit_is_a_warning(api: Fetch) -> None:
    text = TEXT.replace("zero3", "ddp")
    plan = reported(await post(api, "configs/plan", **{**BODY, "text": text}, cluster="spot"))
    assert plan["fits"] is False
    (memory,) = [fact for fact in plan["facts"] if fact["label"] == "memory"]
    assert memory["level"] == "warning"


async def test_a_template_below_the_root_folder_is_found(api: Fetch, jp_root_dir: Path) -> None:
    (jp_root_dir / "cluster_templates").mkdir()
    text = "name: mine\nprovider: local\nnum_gpus: 0\nprice: {node_hour: 2}\n"
    (jp_root_dir / "cluster_templates" / "mine.yaml").write_text(text)
    plan = reported(await post(api, "configs/plan", **BODY, cluster="mine"))
    assert plan["device"] == "16 x CPU"


async def test_mistakes_are_errors_with_their_remedies(api: Fetch, folder: Path) -> None:
    wrong = reported(await post(api, "configs/plan", **{**BODY, "text": TEXT + "sed: 1\n"}), 422)
    assert "sed" in [problem["path"] for problem in wrong["problems"]]
    unknown = reported(await post(api, "configs/plan", **BODY, cluster="nowhere"), 404)
    assert "nowhere" in unknown["message"]
    for other in (
        {"path": "sub/x.script.yaml", "text": "script: a.py\n"},
        {"kind": "cluster", "text": "num_cpus: 2\n"},
    ):
        refused = reported(await post(api, "configs/plan", **other), 422)
        assert "is not a training config" in refused["message"]
    (folder / "llama" / "config.json").write_text("no JSON")
    unread = reported(await post(api, "configs/plan", **BODY), 422)
    assert unread["remedy"]
    outside = {"path": "../x.train.yaml", "text": TEXT}
    assert (await post(api, "configs/plan", **outside)).code == 403
