"""A list of sources with weights in `data.train`: read, checked, completed, written back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llmops_kernel.config.assist.complete import complete, hover
from llmops_kernel.config.assist.diagnose import diagnose
from llmops_kernel.config.assist.file_kinds import TRAIN, check_files, form_schema, render
from llmops_kernel.config.assist.schema import schema_of
from llmops_kernel.config.assist.template import commented
from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.document import flatten, parse_value
from llmops_kernel.errors import ConfigError
from llmops_kernel.store.diff import differences
from llmops_kernel.views.run_query.row import config_values
from tests.configs import dump_yaml, training_config_from_text

TEXT = """\
model: tiny-llama
data:
  format: chat
  train:
    - {path: a.jsonl, weight: 2}
    - path: s3://b/*.parquet
      weight: 0.5
      format: text
      columns: {text: body}
    - c.jsonl
"""
HALF = "s3://b/*.parquet (weight 0.5)"


def config(train: Any, **more: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({"model": "tiny-llama", "data": {"train": train, **more}})


def test_a_list_is_read_and_its_sources_take_what_they_leave_out_from_the_section() -> None:
    data = training_config_from_text(TEXT).data
    assert data.is_mixture
    assert [one.path for one in data.sources] == ["a.jsonl", "s3://b/*.parquet", "c.jsonl"]
    assert [one.weight for one in data.sources] == [2, 0.5, 1]
    assert [one.format for one in data.sources] == ["chat", "text", "chat"]
    assert [one.columns for one in data.sources] == [{}, {"text": "body"}, {}]
    assert {one.train_split for one in data.sources} == {"train"}
    alone = data.of(data.sources[1])
    assert (alone.train, alone.format, alone.columns) == (
        "s3://b/*.parquet",
        "text",
        {"text": "body"},
    )
    assert data.train_words == "a.jsonl (weight 2) and 2 more"


def test_one_text_stays_as_it_was_on_the_wire() -> None:
    one = config("a.jsonl")
    assert one.model_dump(mode="json")["data"]["train"] == "a.jsonl"
    assert not one.data.is_mixture
    assert one.data.of(one.data.sources[0]) == one.data


@pytest.mark.parametrize("write", [dump_yaml, commented])
@pytest.mark.parametrize("train", ["a.jsonl", [{"path": "a.jsonl", "weight": 2}, "b.jsonl"]])
def test_what_is_written_reads_back(write: Any, train: Any) -> None:
    one = config(train)
    assert training_config_from_text(write(one)) == one
    assert TrainingConfig.model_validate(json.loads(one.model_dump_json())) == one


MISTAKES = {
    "[]": "data.train: names no training rows; name a file",
    "[{path: a, weight: 0}]": "data.train.0.weight: must be a number above 0 and at most 1000",
    "[a, {path: b, weight: 1001}]": "data.train.1.weight: must be a number above 0 and at most",
    "[{path: a, weight: .inf}]": "data.train.0.weight: must be a number above 0",
    "[{path: a, weight: .nan}]": "data.train.0.weight: must be a number above 0",
    "[{path: a, weigth: 2}]": "data.train.0.weigth: unknown key (value 2); did you mean weight?",
    "[{weight: 2}]": "data.train.0.path: is missing",
    "[[a]]": "data.train.0: must be a section of `key: value` lines, or just a value for path",
    "[{path: a, columns: {txt: b}}]": "data.train.0.columns: txt is not a field of any format;"
    " did you mean text?",
    "{path: a}": "data.train: must be text or a list of sections",
}


@pytest.mark.parametrize("written", MISTAKES)
def test_mistakes_name_the_source(written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        training_config_from_text(f"model: tiny-llama\ndata:\n  train: {written}\n")
    assert MISTAKES[written] in str(caught.value)
    assert len(caught.value.problems) == 1


def test_numbers_are_the_names_that_were_written() -> None:
    text = "model: tiny-llama\ndata: {train: [0012, {path: 7}]}\n"
    assert [one.path for one in training_config_from_text(text).data.sources] == ["0012", "7"]
    assert training_config_from_text("model: tiny-llama\ndata: {train: 0012}\n").data.train == (
        "0012"
    )


def test_the_files_of_all_sources_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"txt": "x"}\n')
    (tmp_path / "b.jsonl").write_text('{"body": "x"}\n')
    train = ["a.jsonl", {"path": "b.jsonl", "columns": {"text": "body"}}, "c.jsonl", "s3://b/d"]
    found = check_files(config(train), tmp_path)
    assert [(one.path, one.file or one.value) for one in found] == [
        ("data.train.0.path", "a.jsonl"),
        ("data.train.2.path", "c.jsonl"),
    ]
    assert "has only the keys txt" in found[0].message
    # Of a source that is wrong itself nothing is looked up.
    assert [
        one.path for one in check_files(config(train), tmp_path, wrong=["data.train.2.path"])
    ] == ["data.train.0.path"]


def test_mistakes_are_underlined_where_they_are_written(tmp_path: Path) -> None:
    text = TEXT.replace("c.jsonl", "c.jsnl").replace("weight: 2", "weight: 0")
    (one,) = diagnose(TRAIN, text, folder=tmp_path)
    assert (one.path, one.line) == ("data.train.0.weight", 5)
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    found = diagnose(TRAIN, TEXT, folder=tmp_path, with_files=True)
    assert [(one.path, one.line) for one in found] == [("data.train.0.path", 5)] * (
        len(found) - 1
    ) + [("data.train.2.path", 10)]


def labels(text: str, folder: Path | None = None) -> list[str]:
    before, _, after = text.partition("|")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1)
    found = complete(TRAIN, before + after, line=line, column=column, folder=folder)
    return [one.label for one in found]


def test_keys_and_files_of_a_source_are_completed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    head = "model: tiny-llama\ndata:\n  train:\n"
    assert labels(f"{head}    - |", tmp_path)[:2] == ["path", "weight"]
    assert "a.jsonl" in labels(f"{head}    - |", tmp_path)
    assert labels(f"{head}    - path: |", tmp_path) == ["a.jsonl"]
    assert "text" in labels(f"{head}    - path: a.jsonl\n      format: |")
    assert "weight" in labels(f"{head}    - {{path: a.jsonl, |}}")
    assert labels("model: tiny-llama\ndata:\n  train: |", tmp_path) == ["a.jsonl"]


def test_a_weight_is_explained() -> None:
    found = hover(TRAIN, TEXT, line=7, column=8)
    assert found is not None
    assert "seen in one epoch" in found.text
    assert "Default `1.0`" in found.text


def test_the_schema_takes_both_forms() -> None:
    schema = schema_of(TrainingConfig)
    jsonschema.validate(parse_value(TEXT), schema)
    jsonschema.validate({"model": "m", "data": "a.jsonl"}, schema)
    jsonschema.validate({"model": "m", "data": {"train": "a.jsonl"}}, schema)
    for train in (3, [3], [{"weight": 2}], [{"path": "a", "weight": 0}]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"model": "m", "data": {"train": train}}, schema)


def test_the_form_describes_both_and_a_changed_weight_is_written() -> None:
    one = form_schema(TRAIN)["properties"]["data"]["properties"]["train"]
    text, several = one["anyOf"]
    assert text == {"type": "string"}
    assert several["items"]["properties"]["weight"]["maximum"] == 1000
    train = [{"path": "a.jsonl", "weight": 3}, "c.jsonl"]
    written = render(TRAIN, {"model": "m", "data": {"train": train, "format": "chat"}})
    assert [source.words for source in training_config_from_text(written).data.sources] == [
        "a.jsonl (weight 3)",
        "c.jsonl",
    ]
    assert training_config_from_text(written).data.format == "chat"


def test_differences_and_the_table_of_runs_name_the_source_and_the_field() -> None:
    sources = [{"path": "a.jsonl", "weight": 2}, "b.jsonl"]
    one = config(sources).model_dump(mode="json")
    other = config([{"path": "a.jsonl", "weight": 3}, "b.jsonl"]).model_dump(mode="json")
    assert differences(one, other) == [("data.train[0].weight", 2.0, 3.0)]
    assert config_values(one)["config.data.train[0].weight"] == 2.0
    single = config("a.jsonl").model_dump(mode="json")
    changed = {path for path, *_ in differences(single, one)}
    assert {"data.train", "data.train[0].path", "data.train[1].path"} <= changed


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.train.0.weight=3", ["a.jsonl (weight 3)", HALF, "c.jsonl"]),
        ("data.train.2.weight=3", ["a.jsonl (weight 2)", HALF, "c.jsonl (weight 3)"]),
        ("data.train.1.path=d.jsonl", ["a.jsonl (weight 2)", "d.jsonl (weight 0.5)", "c.jsonl"]),
        ("data.train=[x.jsonl, {path: y.jsonl, weight: 2}]", ["x.jsonl", "y.jsonl (weight 2)"]),
        ("data.train=x.jsonl", ["x.jsonl"]),
        ("train=x.jsonl", ["x.jsonl"]),
    ],
)
def test_one_source_is_changed_by_its_number(override: str, expected: list[str]) -> None:
    found = training_config_from_text(TEXT, [override]).data.sources
    assert [one.words for one in found] == expected


def test_a_number_that_no_source_has_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"data\.train: must be text or a list of sections"):
        training_config_from_text(TEXT, ["data.train.3.weight=3"])
    with pytest.raises(ConfigError, match=r"data\.train\.0\.weight: must be a number above 0"):
        training_config_from_text(TEXT, ["data.train.0.weight=0"])


def test_values_are_listed_by_the_number_of_their_source() -> None:
    found = flatten(training_config_from_text(TEXT))
    assert found["data.train[0].weight"] == 2
    assert found["data.train[2].path"] == "c.jsonl"
    assert flatten(config("a.jsonl"))["data.train"] == "a.jsonl"


def test_a_section_needs_no_check_of_the_whole_config() -> None:
    assert DataConfig(train=["a.jsonl"]).sources[0].format == "auto"  # type: ignore[arg-type]
