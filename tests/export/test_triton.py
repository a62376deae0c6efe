"""`--to triton`: the repository that Triton's vLLM backend documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from llmops_kernel.models.catalogue import prepare
from tests.export.conftest import PROMPT, Store, greedy


def test_a_model_repository(store: Store, adapter: Path, tmp_path: Path) -> None:
    done = store.export(store.add("adding-1", adapter), tmp_path / "repo", to="triton", check=1)
    model = tmp_path / "repo" / "adding"
    assert {one.name for one in model.iterdir()} == {"config.pbtxt", "1"}
    engine = json.loads((model / "1" / "model.json").read_text())
    assert engine["model"] == "/models/adding/1/weights"
    assert engine["dtype"] == "float32"
    assert engine["max_model_len"] == 576
    weights = model / "1" / "weights"
    assert greedy(weights, [PROMPT]) == greedy(prepare("tiny-llama"), [PROMPT], adapter=adapter)
    readme = (tmp_path / "repo" / "README.md").read_text()
    assert "Not tested" in readme
    assert f"{tmp_path / 'repo'}:/models:ro" in readme
    assert "127.0.0.1:8000" in done.command
    assert any("Triton was not started" in note for note in done.notes)


# The fields that we write, as Triton's model_config.proto defines them: name, number, type.
_TEXT, _BOOL, _INT = "TYPE_STRING", "TYPE_BOOL", "TYPE_INT32"
_MESSAGES = {
    "Tensor": [("name", 1, _TEXT), ("data_type", 2, "DataType"), ("dims", 4, "*TYPE_INT64")],
    "Input": [("optional", 8, _BOOL)],
    "Policy": [("decoupled", 1, _BOOL)],
    "Group": [("kind", 4, "Kind"), ("count", 2, _INT)],
    "Parameter": [("string_value", 1, _TEXT)],
    "Entry": [("key", 1, _TEXT), ("value", 2, "Parameter")],
    "ModelConfig": [
        ("name", 1, _TEXT),
        ("backend", 17, _TEXT),
        ("max_batch_size", 4, _INT),
        ("input", 5, "*Input"),
        ("output", 6, "*Tensor"),
        ("instance_group", 7, "*Group"),
        ("parameters", 14, "*Entry"),
        ("model_transaction_policy", 19, "Policy"),
    ],
}
_ENUMS = {
    "DataType": {"TYPE_INVALID": 0, "TYPE_BOOL": 1, "TYPE_STRING": 13},
    "Kind": {"KIND_AUTO": 0, "KIND_GPU": 1, "KIND_CPU": 2, "KIND_MODEL": 3},
}


def read_config(text: str) -> Any:
    """Parse it as Triton does: an unknown field, type or value is an error."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    file = descriptor_pb2.FileDescriptorProto(name="triton.proto", package="triton")
    for enum, values in _ENUMS.items():
        made = file.enum_type.add(name=enum)
        for name, number in values.items():
            made.value.add(name=name, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in [*(_MESSAGES["Tensor"] if name == "Input" else []), *fields]:
            one = message.field.add(name=field, number=number, label=3 if kind[0] == "*" else 1)
            kind = kind.lstrip("*")
            if kind.startswith("TYPE_"):
                one.type = descriptor_pb2.FieldDescriptorProto.Type.Value(kind)
            else:
                one.type = 14 if kind in _ENUMS else 11
                one.type_name = f".triton.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("triton.ModelConfig")
    return text_format.Parse(text, message_factory.GetMessageClass(found)())


def test_the_config_is_what_tritons_definition_reads(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    store.export(store.add("adding-1", adapter), tmp_path / "repo", to="triton", check=0)
    config = read_config((tmp_path / "repo" / "adding" / "config.pbtxt").read_text())
    assert (config.name, config.backend, config.max_batch_size) == ("adding", "vllm", 0)
    assert config.model_transaction_policy.decoupled
    assert [one.name for one in config.input][:2] == ["text_input", "stream"]
    assert [one.optional for one in config.input] == [False, True, True, True]
    assert config.instance_group[0].kind == _ENUMS["Kind"]["KIND_MODEL"]
    assert {one.key for one in config.parameters} == {"REPORT_CUSTOM_METRICS"}


def test_the_config_names_nothing_twice(store: Store, adapter: Path, tmp_path: Path) -> None:
    store.export(store.add("a", adapter), tmp_path / "repo", to="triton", check=0, name="x.1")
    text = (tmp_path / "repo" / "x.1" / "config.pbtxt").read_text()
    assert text.startswith('name: "x.1"\nbackend: "vllm"\n')
    assert text.count("{") == text.count("}")
    names = re.findall(r'^    name: "(\w+)"', text, re.MULTILINE)
    assert len(names) == len(set(names))
