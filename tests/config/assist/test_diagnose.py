"""Each mistake stands at its place, and forms are told what each field takes."""

import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.assist import diagnose, examine, form_schema
from llmops_kernel.config.assist.file_kinds import CLUSTER, TRAIN
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds.reading import file_kind_named, file_kinds

BASE = "model: tiny-llama\ndata: rows.jsonl\n"


def marked(text: str, **options: Any) -> list[tuple[str, str]]:
    """(the text that is marked, the field)."""
    lines = text.split("\n")
    found = diagnose(TRAIN, text, **options)
    assert all(item.line == item.end_line for item in found)
    return [(lines[i.line - 1][i.column : i.end_column], i.path) for i in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BASE, []),
        (BASE + "sed: 1\n", [("sed", "sed")]),
        (BASE + "seed: -1  # no\n", [("-1", "seed")]),
        (BASE + "method: loraa\n", [("loraa", "method.type")]),
        (BASE + "optimizer: {learning_rate: fast, x: 1}\n",
         [("fast", "optimizer.learning_rate"), ("x", "optimizer.x")]),
        (BASE + "training:\n  global_batch_size: 3\n", [("3", "training.global_batch_size")]),
        (BASE + "parallelism:\n  offload_params: true\n", [("true", "parallelism.offload_params")]),
        (BASE + "training_arguments:\n  bf16: true\n", [("bf16", "training_arguments.bf16")]),
        (BASE + "seed: 1\nseed: 2\n", [("seed", "seed")]),
        (BASE + "report_to: [wandbb]\n", [("[wandbb]", "report_to")]),
        ("model: {dtype: float32}\ndata: x.jsonl\n", [("model", "model.id")]),
        ("# head\nseed: 1\n", [("# head", "model"), ("# head", "data")]),
        (BASE + "evaluation:\n  generate: true\n", [("true", "evaluation.generate")]),
        ("", [("", "")]),
        ("- a\n- b\n", [("- a", "")]),
        (BASE + "name: 'a\n", [("name: 'a", "")]),
        (BASE + "  seed: 1\n", [("seed: 1", "")]),
        ("model: x\n\tdata: y\n", [("data: y", "")]),
    ],
)  # fmt: skip
def test_places(text: str, expected: list[tuple[str, str]]) -> None:
    assert marked(text) == expected


def test_a_key_given_very_often_is_located_each_time_and_soon() -> None:
    """A look through all of them for each of them would take minutes."""
    count = 20_000
    begin = time.monotonic()
    found = [one for one in diagnose(TRAIN, "seed: 1\n" * count) if "twice" in one.message]
    assert time.monotonic() - begin < 60
    assert [one.line for one in found] == list(range(2, count + 1))


def test_files_are_marked_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\nnot json\n')
    (tmp_path / "h.py").write_text("def format_example():\n    return 1\n")
    text = BASE + "hooks:\n  file: h.py\n"
    assert marked(text, folder=tmp_path, with_files=True) == [
        ("rows.jsonl", "data.train"),
        ("h.py", "hooks.file"),
    ]
    reported = [item.message for item in diagnose(TRAIN, text, folder=tmp_path, with_files=True)]
    assert reported[0].startswith("row 2: not JSON")
    assert reported[1].startswith("line 1: format_example takes nothing")
    assert marked(text, folder=tmp_path) == []


def test_overrides_are_reported_as_such() -> None:
    found = examine(TRAIN, BASE, overrides=["training.max_steps=0", "nonsense"])
    assert {problem.file for problem in found.problems} == {
        "override training.max_steps=0",
        "override nonsense",
    }
    assert examine(TRAIN, BASE, overrides=["lr=1e-3"]).config is not None


def test_a_template_is_named_by_its_file() -> None:
    found = examine(CLUSTER, "num_cpus: 2\n", path="a/Big_one.cluster.yaml")
    assert found.config is not None
    assert found.config.name == "big-one"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", file_kinds().values(), ids=file_kinds())
def test_templates_are_right_and_say_what_they_do(kind: Any) -> None:
    found = examine(kind, kind.template())
    assert found.problems == []
    assert all(line and not line.startswith(" ") for line in kind.effect(found.config))


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ConfigError, match="train"):
        file_kind_named("trian")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("seed", {"type": "integer", "minimum": 0, "default": 42}),
        ("name", {"type": "string", "default": "train"}),
        ("optimizer.learning_rate", {"type": "number", "exclusiveMinimum": 0, "default": 2e-4}),
        ("training.max_steps", {"type": "integer", "minimum": 1, "nullable": True}),
        ("parallelism.use_gpu", {"enum": [True, False, "auto"], "default": "auto"}),
        ("model.dtype", {"type": "string", "enum": ["auto", "float32", "bfloat16"]}),
        ("report_to", {"type": "array", "items": {"type": "string"}, "default": []}),
        ("training_arguments", {"type": "object", "additionalProperties": {}}),
        ("method.target_modules",
         {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ],
)  # fmt: skip
def test_form_schema(path: str, expected: dict[str, Any]) -> None:
    schema: dict[str, Any] = form_schema(TRAIN)
    for part in path.split("."):
        schema = schema["properties"][part]
    assert expected.items() <= schema.items()
    assert schema["description"]
    assert schema["expected"]


def test_form_schema_has_no_references_and_names_what_is_required() -> None:
    schema = form_schema(TRAIN)
    assert "$ref" not in str(schema)
    assert schema["required"] == ["model", "data"]
    assert schema["properties"]["data"]["required"] == ["train"]
    env = form_schema(CLUSTER)["properties"]["env"]
    assert env["additionalProperties"] == {"type": "string"}
    assert "lower-case" in schema["properties"]["name"]["patternWords"]
