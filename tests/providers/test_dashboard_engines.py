"""What is known of a loaded model, from Ray's list of actors and the engine's own note."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.providers.dashboard import engine_actors, engine_info, note_path
from llmops_kernel.providers.protocol import EngineInfo
from llmops_kernel.services.scoring.standing import engine_line, model_name

ROW = {"name": "engine-ab12-1", "node_id": "f00d" * 14, "pid": 7, "state": "ALIVE"}
NOTE: dict[str, Any] = {
    "model": "/models/SmolLM2-135M",
    "engine": "vllm",
    "state": "idle",
    "num_gpus": 2,
    "gpu_ids": ["0", "1"],
    "pid": 7,
    "run": "tags-1",
    "keep_s": 60.0,
    "idle_since_s": 1000.0,
}


def test_an_idle_engine_says_since_when_and_until_when() -> None:
    one = engine_info(ROW, NOTE)
    assert (one.replica, one.idle_since_s, one.leaves_at_s) == (1, 1000.0, 1060.0)
    assert engine_line(one, now_s=1020.0) == (
        "SmolLM2-135M (vllm, replica 1): idle for 20.0 s, unloads in 40.0 s, GPU 0 1, node"
        " f00df00d, last used by tags-1"
    )


def test_a_busy_engine_on_cpus() -> None:
    busy = {"state": "busy", "idle_since_s": None, "num_gpus": 0, "gpu_ids": []}
    one = engine_info(ROW, {**NOTE, **busy})
    assert one.leaves_at_s is None
    assert engine_line(one).endswith("busy, on CPUs, node f00df00d, used by tags-1")


@pytest.mark.parametrize(
    "note", [None, "text", {"pid": 6, "state": "idle"}, {**NOTE, "state": "of another version"}]
)
def test_without_its_note_only_the_actor_is_known(note: Any) -> None:
    """Also with the note of a process that was killed."""
    one = engine_info(ROW, note)
    assert one == EngineInfo(name="engine-ab12-1", replica=1, node_id=ROW["node_id"])
    assert engine_line(one) == "– (replica 1): –, node f00df00d"


def test_actors_without_a_name_are_none_of_ours_and_no_answer_is_unknown() -> None:
    answer = {"data": {"result": {"result": [{"name": ""}, ROW]}}}
    assert engine_actors(answer) == [ROW]
    assert engine_actors(None) is None
    assert engine_actors({"data": None}) is None
    assert "engine-ab12-1.json" in note_path(ROW)


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("org/model", "org/model"),
        ("/cache/model", "model"),
        ("s3://bucket/models/tags", "tags"),
        ("", ""),
    ],
)
def test_a_folder_is_shown_by_its_name(model: str, shown: str) -> None:
    assert model_name(EngineInfo(name="x", model=model)) == shown
