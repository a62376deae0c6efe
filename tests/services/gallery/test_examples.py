"""Each example of the gallery is valid as it is written, and trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import llmops_kernel as llmops
from llmops_kernel.api import Cluster
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.gallery import EXAMPLES, write_example

TWO_STEPS = ("model=tiny-llama", "training.max_steps=2", "data.max_rows=16", "data.max_eval_rows=4")
# The tiny model's vectors have 64 numbers. A teacher's rows have the tokens of their student.
MORE = {
    "zero3-offload": ("training.global_batch_size=2",),
    "distill": ("model=SmolLM2-135M-Instruct",),
    "two-tower": ("objective.dimensions=[16,32]",),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_valid_as_it_is_written(name: str, tmp_path: Path) -> None:
    config = llmops.init(tmp_path / "new", example=name)
    assert config.parent == tmp_path / "new"
    llmops.check(config)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_explains_itself(name: str, tmp_path: Path) -> None:
    text = llmops.init(tmp_path, example=name).read_text()
    for words in (
        f"llmops check {EXAMPLES[name].config}",
        f"llmops submit {EXAMPLES[name].config}",
    ):
        assert words in text


def test_all_fit_into_one_folder_and_data_that_is_there_already_stays(tmp_path: Path) -> None:
    written = {name: write_example(name, tmp_path) for name in EXAMPLES}
    assert set(written["chat"].others) == set(written["zero3-offload"].others)
    configs = {path.name for path in tmp_path.glob("*.yaml")}
    assert configs == {example.config for example in EXAMPLES.values()} | {"teacher.score.yaml"}


def test_the_rows_of_a_teacher_are_those_that_its_config_scores(tmp_path: Path) -> None:
    written = write_example("distill", tmp_path)
    (config,) = (path for path in written.others if path.name == "teacher.score.yaml")
    llmops.check(config)
    top_k = yaml.safe_load(config.read_text())["task"]["top_k"]
    for part in ("train", "eval"):
        rows, answers = (
            [json.loads(line) for line in (tmp_path / "data" / name).read_text().splitlines()]
            for name in (f"distill-{part}.jsonl", f"alpaca-{part}.jsonl")
        )
        for row, answer in zip(rows, answers, strict=False):
            assert row["messages"][-1]["content"] == answer["output"]
            assert {len(tokens) for tokens in row["top_logprobs"]["token_ids"]} == {top_k}


def test_a_file_of_yours_is_not_overwritten_and_nothing_else_is_written(tmp_path: Path) -> None:
    mine = tmp_path / "data" / "chat-train.jsonl"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ConfigError, match=r"chat-train\.jsonl already exists") as raised:
        write_example("chat", tmp_path)
    assert "--force" in raised.value.remedy
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    write_example("chat", tmp_path, force=True)
    assert mine.read_text() != "mine"


def test_the_config_may_have_another_name(tmp_path: Path) -> None:
    path = tmp_path / "support.train.yaml"
    assert llmops.init(path, example="chat") == path
    llmops.check(path)
    with pytest.raises(ConfigError, match=r"a\.train\.yaml is not the name") as raised:
        llmops.init(tmp_path / "a.train.yaml", example="script")
    assert ".script.yaml" in raised.value.remedy


def test_an_unknown_name_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no example 'cat'") as raised:
        llmops.init(tmp_path, example="cat")
    assert "use chat" in raised.value.remedy
    assert "continued-pretraining" in raised.value.remedy


def test_conversations_have_two_answers_that_follow_from_the_dish(tmp_path: Path) -> None:
    write_example("chat", tmp_path)
    lines = (tmp_path / "data" / "chat-train.jsonl").read_text().splitlines()
    rows = [json.loads(line)["messages"] for line in lines]
    assert len(rows) > 700
    assert {tuple(turn["role"] for turn in row) for row in rows} == {
        ("system", "user", "assistant", "user", "assistant")
    }
    (duck,) = (row for row in rows if "wheat pancakes" in row[1]["content"])
    assert duck[2]["content"] == "It is a Chinese main, with meat."
    assert duck[4]["content"] == "It contains gluten and soy."
    assert any("It is an American" in row[2]["content"] for row in rows)


@pytest.fixture
def cluster(ray_cluster: ClusterInfo) -> Cluster:
    return llmops.cluster(ray_cluster.name)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_trains(name: str, cluster: Cluster, tmp_path: Path) -> None:
    config = llmops.init(tmp_path, example=name)
    if name == "script":
        run = cluster.submit(config, args=["--steps", "2"])
    else:
        run = cluster.submit(config, overrides=[*TWO_STEPS, *MORE.get(name, ())])
    # With zero3-offload DeepSpeed compiles two operations first, beside other tests.
    assert run.wait(timeout_s=840) == "SUCCEEDED", run.logs(tail=40)
    losses = [step.loss for step in run.view.steps]
    assert len(losses) == 2
    assert all(loss > 0 for loss in losses)
