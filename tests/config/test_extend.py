"""A new method and a new field arrive everywhere, from one file each."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from pydantic import Field

from llmops_kernel.cli.config_check import check_all
from llmops_kernel.config.assist import complete, examine, form_schema, hover, render
from llmops_kernel.config.assist.file_kinds import TRAIN
from llmops_kernel.config.assist.schema import schema_of
from llmops_kernel.config.assist.template import commented, training_template
from llmops_kernel.config.models.methods import METHODS, MethodConfig
from llmops_kernel.config.models.sections import OptimizerConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.document import parse_value
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds.kind import RunKind
from llmops_kernel.kinds.registry import register, unregister
from tests.configs import training_config_from_dict

BASE = "model: tiny-llama\ndata: rows.jsonl\n"
DATA = {"model": "tiny-llama", "data": "rows.jsonl"}


class ToyMethod(MethodConfig):
    variant_name = "toy"
    summary = "trains only the biases"
    apply = "tests.config.toy_method:prepare"

    type: Literal["toy"] = "toy"
    strength: float = Field(gt=0)
    """How strongly the biases are trained."""
    layers: int = Field(default=3, ge=1)
    """How many layers are trained."""


class ToyOptimizer(OptimizerConfig):
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Share of the last step that is kept."""


class ToyTraining(TrainingConfig):
    optimizer: ToyOptimizer = ToyOptimizer()


@pytest.fixture
def toy_method() -> Iterator[type[MethodConfig]]:
    METHODS.add(ToyMethod)
    yield ToyMethod
    METHODS.remove(ToyMethod)


def problems(**method: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        training_config_from_dict({**DATA, "method": method})
    return caught.value.message


@pytest.mark.usefixtures("toy_method")
def test_a_new_method_is_read_checked_and_changed() -> None:
    config = training_config_from_dict({**DATA, "method": {"type": "toy", "strength": 2}})
    assert isinstance(config.method, ToyMethod)
    assert (config.method.strength, config.method.layers) == (2.0, 3)
    assert training_config_from_dict(config.model_dump(mode="json")) == config
    changed = training_config_from_dict(config.model_dump(), ["method.layers=5"])
    assert changed.method.model_dump() == {"type": "toy", "strength": 2.0, "layers": 5}
    back = training_config_from_dict(config.model_dump(), {"method": "lora"})
    assert back.method.type == "lora"
    assert "method.strength: must be a number above 0" in problems(type="toy", strength=0)
    assert "method.strength: is missing" in problems(type="toy")
    assert "method.r: is a field of lora and qlora, not of toy" in problems(
        type="toy", strength=1, r=8
    )
    assert "method.layers: is a field of toy, not of lora" in problems(layers=8)
    assert "did you mean layers?" in problems(type="toy", strength=1, layer=8)
    assert "one of full, lora, qlora, toy" in problems(type="magic")


@pytest.mark.usefixtures("toy_method")
def test_a_new_method_is_completed_explained_and_described() -> None:
    text = BASE + "method:\n  type: toy\n  \n"
    labels = [one.label for one in complete(TRAIN, text, line=5, column=2)]
    assert labels == ["strength", "layers"]
    values = [one.label for one in complete(TRAIN, BASE + "method: \n", line=3, column=8)]
    assert values == ["full", "lora", "qlora", "toy"]
    shown = hover(TRAIN, BASE + "method: {type: toy, strength: 2}\n", line=3, column=22)
    assert shown is not None
    assert shown.text.startswith("How strongly the biases are trained.")
    found = examine(TRAIN, BASE + "method: {type: toy, strength: 2}\n")
    assert found.problems == []
    assert "toy, which trains only the biases" in " ".join(TRAIN.effect(found.config))
    data = {"method": {"type": "toy", "strength": 1}}
    assert render(TRAIN, data).endswith("method:\n  type: toy\n  strength: 1\n")


@pytest.mark.usefixtures("toy_method")
def test_a_new_method_is_in_template_schema_and_form() -> None:
    text = training_template(**{"method": "toy", "method.strength": 2})
    assert "# How strongly the biases are trained.\n  strength: 2.0\n" in text
    assert "`toy` trains only the biases" in " ".join(text.replace("#", " ").split())
    valid = jsonschema.Draft202012Validator(schema_of(TrainingConfig)).is_valid
    assert valid(parse_value(text))
    assert valid({**DATA, "method": {"type": "toy", "strength": 1}})
    assert not valid({**DATA, "method": {"type": "toy", "strength": 1, "r": 8}})
    assert not valid({**DATA, "method": {"strength": 1}})
    fields = form_schema(TRAIN)["properties"]["method"]["properties"]
    assert fields["type"]["enum"] == ["full", "lora", "qlora", "toy"]
    assert fields["strength"]["when"] == {"type": ["toy"]}
    assert fields["r"]["when"] == {"type": ["lora", "qlora"]}
    assert "when" not in fields["type"]


def test_without_the_fixture_the_method_is_unknown() -> None:
    assert "must be one of full, lora, qlora (value toy)" in problems(type="toy")


def test_a_method_names_what_prepares_the_model() -> None:
    for method in METHODS:
        module, _, function = method.apply.partition(":")
        path = Path(__file__).parents[2] / Path(*module.split(".")).with_suffix(".py")
        assert f"def {function}(model" in path.read_text()


TOY_FILE = replace(TRAIN, name="toy", globs=("*.toy.yaml",), model=ToyTraining)


@pytest.fixture
def toy_kind() -> Iterator[Any]:
    register(RunKind(name="toy", title="Toy", config_file=f"{__name__}:TOY_FILE"))
    yield TOY_FILE
    unregister("toy")


def test_a_new_field_is_one_line_in_its_section(toy_kind: Any, tmp_path: Path) -> None:
    text = commented(ToyTraining(**DATA))
    assert "  # Share of the last step that is kept.\n  momentum: 0.9\n" in text
    properties = schema_of(ToyTraining)["$defs"]["ToyOptimizer"]["properties"]
    assert properties["momentum"]["description"] == "Share of the last step that is kept."
    written = BASE + "optimizer:\n  mom\n"
    (offered,) = [o for o in complete(toy_kind, written, line=4, column=5) if o.label == "momentum"]
    assert offered.detail == "a number of at least 0 and below 1 (default 0.9)"
    path = tmp_path / "a.toy.yaml"
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
    path.write_text(BASE + "optimizer: {momentum: 0.5}\n")
    (good,) = check_all([path], [], workspace=None)
    assert good.is_valid
    assert good.config.optimizer.momentum == 0.5
    (bad,) = check_all([path], ["momentum=2"], workspace=None)
    assert "optimizer.momentum: must be a number of at least 0 and below 1" in str(bad.problems[0])
