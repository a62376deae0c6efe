"""Whole score runs through vLLM in its own environment, as a user submits them.

The menu example with SmolLM2: the base model, then an adapter of it on the engine that stands, then
the base model through Transformers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

import llmops_kernel as llmops
from llmops_kernel import score_env
from llmops_kernel.driver.hooks import load_functions
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.score.engines.protocol import (
    Answer,
    Engine,
    EngineSpec,
    Job,
    Request,
    load_engine,
)
from llmops_kernel.store import paths
from tests.end_to_end.conftest import processes
from tests.providers.conftest import all_listening, record_of
from tests.score.conftest import output_of, table_of
from tests.score.engines import ties
from tests.waiting import until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(
        not score_env.ready(), reason="vLLM's environment is not made (make score-env)"
    ),
]
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
ROWS, MAX_TOKENS, CONTEXT = 24, 12, 512
KEEP_S = 30
SETTINGS = {
    "input.limit": ROWS,
    # Where two tokens are about equally probable, bfloat16 kernels choose either.
    "model.dtype": "float32",
    "sampling.max_tokens": MAX_TOKENS,
    "engine.type": "vllm",
    "engine.max_model_len": CONTEXT,
    "output.part_rows": 10,
}


@dataclass
class Scored:
    """Two runs of one table, one after the other."""

    runs: list[llmops.Run] = field(default_factory=list)
    engines: list[set[int]] = field(default_factory=list)
    """The engine's processes after each run."""
    files: set[str] = field(default_factory=set)
    """What these have in memory."""
    addresses: set[str] = field(default_factory=set)
    """Where the cluster's processes, these included, listen."""
    others: list[llmops.Run] = field(default_factory=list)
    """Of the base model through Transformers."""


def _engines() -> dict[int, psutil.Process]:
    return {process.pid: process for process in processes("ray::EngineActor")}


@pytest.fixture(scope="module")
def adapter(smollm: Path, random_adapter: Callable[[Path, int], str]) -> str:
    return random_adapter(smollm, 1)


@pytest.fixture(scope="module")
def scored(
    ray_cluster: ClusterInfo, adapter: str, tmp_path_factory: pytest.TempPathFactory
) -> Scored:
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("menu.score.yaml", "menu_hooks.py", "data/menu-eval.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(NOTEBOOKS / name, folder / name)
    cluster, before, made = llmops.cluster(ray_cluster.name), set(_engines()), Scored()
    for settings in ({}, {"model.adapter": adapter, "engine.keep_s": KEEP_S}):
        run = cluster.submit(folder / "menu.score.yaml", overrides={**SETTINGS, **settings})
        run.wait(300)
        made.runs.append(run)
        own = {pid: process for pid, process in _engines().items() if pid not in before}
        made.engines.append(set(own))
        listening = all_listening(record_of(paths.home(), ray_cluster.name))
        made.addresses |= {address.removeprefix("::ffff:") for address, _ in listening}
        made.files |= {one.path for process in own.values() for one in process.memory_maps()}
    other = {**SETTINGS, "engine.type": "transformers", "engine.keep_s": 1}
    made.others.append(cluster.submit(folder / "menu.score.yaml", overrides=other))
    made.others[0].wait(300)
    return made


@pytest.fixture(scope="module")
def transformers(smollm: Path) -> Iterator[Engine]:
    engine = load_engine(
        EngineSpec(
            type="transformers",
            model=str(smollm),
            dtype="float32",
            max_model_len=CONTEXT,
            batch_size=ROWS,
        )
    )
    yield engine
    engine.close()


def _rows() -> list[dict[str, Any]]:
    lines = (NOTEBOOKS / "data" / "menu-eval.jsonl").read_text().splitlines()[:ROWS]
    return [json.loads(line) for line in lines]


def _prompts() -> list[Any]:
    hook = load_functions(NOTEBOOKS / "menu_hooks.py", ("format_example",))["format_example"]
    assert hook is not None
    return [hook(row)["messages"][:-1] for row in _rows()]


def _answers(engine: Engine, job: Job) -> list[Answer]:
    for number, prompt in enumerate(_prompts()):
        engine.add(Request(id=number, prompt=prompt), job)
    found: list[Answer] = []
    while engine.unfinished:
        found += engine.step()
    return sorted(found, key=lambda one: one.id)


@pytest.mark.parametrize("number", [0, 1], ids=["base", "adapter"])
def test_the_table_is_complete(scored: Scored, number: int) -> None:
    run = scored.runs[number]
    assert run.view.state == "SUCCEEDED", run.view.message
    assert not run.view.warnings
    folder = output_of(run)
    assert sorted(path.name for path in folder.glob("part-*")) == [
        f"part-{part:08}.parquet" for part in range(3)
    ]
    rows = table_of(folder)
    assert [row["id"] for row in rows] == [row["id"] for row in _rows()]
    assert [row["row_number"] for row in rows] == list(range(ROWS))
    assert not any(row["error"] for row in rows)
    assert {row["finish_reason"] for row in rows} <= {"stop", "length"}
    assert json.loads((folder / "_SUCCESS").read_text())["rows"] == ROWS
    summary = json.loads((folder / "_metrics.json").read_text())
    assert (summary["rows"], summary["errors"]) == (ROWS, 0)
    assert {"field_accuracy", "rougeL"} <= set(summary["metrics"])
    assert summary["output_tokens"] == sum(row["output_tokens"] for row in rows)


@pytest.mark.parametrize("number", [0, 1], ids=["base", "adapter"])
def test_the_answers_are_those_of_transformers(
    scored: Scored, transformers: Engine, adapter: str, number: int
) -> None:
    job = Job(max_tokens=MAX_TOKENS, adapter=adapter if number else "")
    rows, others = table_of(output_of(scored.runs[number])), _answers(transformers, job)
    for row, other, prompt in zip(rows, others, _prompts(), strict=True):
        assert row["prompt_tokens"] == other.prompt_tokens
        if row["output"] != other.text:
            gap = ties.gap(transformers, prompt, job, (row["output"], other.text))
            print(f"a tie in row {other.id}: {gap:.4f}")
            assert gap < ties.TIE, (row["output"], other.text)
            continue
        assert (row["output_tokens"], row["finish_reason"]) == (other.output_tokens, other.finish)


def test_both_engines_have_the_same_metrics_in_one_table(scored: Scored) -> None:
    ours, other = scored.runs[0], scored.others[0]
    answers = [[row["output"] for row in table_of(output_of(run))] for run in (ours, other)]
    different = sum(one != two for one, two in zip(*answers, strict=True))
    assert different <= ROWS // 8, "only where two tokens are about equally probable"
    compared = llmops.compare(ours, other)
    found = {change.name: change for change in compared.scores.metrics}
    assert {"field_accuracy", "rougeL"} <= set(found)
    for change in found.values():
        assert change.before is not None
        assert change.name in compared.text()
        # Each row's value is of 0..1, and so are the means that the hook computes of all rows.
        assert change.after == pytest.approx(change.before, abs=different / ROWS + 1e-9)
    assert compared.scores.stability.identical == pytest.approx(1 - different / ROWS)


def test_the_adapter_changes_the_answers(scored: Scored) -> None:
    base, tuned = ([row["output"] for row in table_of(output_of(run))] for run in scored.runs)
    assert sum(one != other for one, other in zip(base, tuned, strict=True)) > ROWS // 2


def test_the_second_run_finds_the_engine_loaded(scored: Scored) -> None:
    first, second = (
        {span.name: span.detail for span in run.view.phases()}["engine"] for run in scored.runs
    )
    assert first.startswith("loaded in ")
    assert second == "it was loaded already"
    (pid,) = scored.engines[0]
    assert scored.engines[1] == {pid}


def test_no_port_of_it_can_be_reached_from_the_network(scored: Scored) -> None:
    assert all(scored.engines), "the engine stood while it was looked at"
    assert scored.addresses == {"127.0.0.1"}


def test_it_runs_in_its_own_environment_and_leaves_when_nobody_uses_it(scored: Scored) -> None:
    (pid,) = scored.engines[0]
    assert any(str(score_env.path()) in file and "/vllm/" in file for file in scored.files)
    until(lambda: pid not in _engines(), timeout_s=300)
