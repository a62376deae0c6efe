"""A script config is checked, completed and explained as any other config file is."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from llmops_kernel.config.assist import complete, diagnose, examine, form_schema, hover, render
from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.config.reading.document import parse_value
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds.reading import file_kind_named, file_kind_of, file_kinds
from llmops_kernel.kinds.script_config import SCRIPT_FILE
from llmops_kernel.services.configs import check, schema
from llmops_kernel.services.submission import from_config
from tests.cli.conftest import call

WRONG = """\
scrpt: train.py
mode: both
num_workers: 0
env: {HF_TOKEN: abc}
"""


def test_it_is_recognised_by_its_name() -> None:
    assert list(file_kinds()) == ["train", "script", "score", "cluster"]
    assert file_kind_of("a/b/ddp.script.yaml") is SCRIPT_FILE
    assert file_kind_of("ddp.py") is None
    assert file_kind_named("script") is SCRIPT_FILE


def test_the_effect_quotes_arguments_as_a_shell_would() -> None:
    text = "script: train.py\nnum_workers: 2\nargs: --note 'two words'\n"
    assert SCRIPT_FILE.effect(examine(SCRIPT_FILE, text).config)[0] == (
        "Runs train.py --note 'two words' on 2 workers, as `torchrun` would."
    )


def test_all_mistakes_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    found = {(one.path, one.line) for one in diagnose(SCRIPT_FILE, WRONG, folder=tmp_path)}
    assert found >= {("scrpt", 1), ("script", 1), ("mode", 2), ("num_workers", 3)}
    path = tmp_path / "a.script.yaml"
    path.write_text("script: trian.py\nworkers: 2\n")
    (tmp_path / "train.py").touch()
    with pytest.raises(ConfigError) as raised:
        from_config(path)
    assert "workers: unknown key" in str(raised.value)
    assert "script: no such file" in str(raised.value)
    assert "did you mean train.py?" in str(raised.value)


def test_check_prints_what_a_script_config_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.script.yaml"
    path.write_text("script: train.py\nargs: [--lr, 1e-4, --fast, no]\nnum_workers: 2\n")
    assert call("check", str(path)) == 1
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "train.py").touch()
    assert call("check", str(path), "resources.cpus=0.5") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Runs train.py --lr 1e-4 --fast no on 2 workers, as `torchrun` would." in shown
    assert "0.5 CPUs" in shown
    assert isinstance(check(path), ScriptConfig)


def test_fields_values_and_files_are_completed(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "notes.txt").touch()
    fields = [one.label for one in complete(SCRIPT_FILE, "", line=1, column=0)]
    assert fields[0] == "script"
    assert {"args", "mode", "num_workers", "resources", "env"} <= set(fields)
    files = complete(SCRIPT_FILE, "script: \n", line=1, column=8, folder=tmp_path)
    assert [one.label for one in files if one.kind == "file"] == ["train.py"]
    modes = complete(SCRIPT_FILE, "mode: \n", line=1, column=6)
    assert {one.label for one in modes} >= {"auto", "driver", "workers"}
    explained = hover(SCRIPT_FILE, "script: train.py\n", line=1, column=2)
    assert explained is not None
    assert explained.text.startswith("The Python file, relative to the workspace.")


def test_a_new_file_explains_each_field_and_is_valid() -> None:
    text = SCRIPT_FILE.template()
    found = examine(SCRIPT_FILE, text)
    assert found.problems == []
    assert found.config == ScriptConfig(script="train.py")
    assert "# CPUs of one worker." in text
    assert form_schema(SCRIPT_FILE)["required"] == ["script"]
    data = {"script": "a.py", "num_workers": 2, "mode": "auto"}
    assert render(SCRIPT_FILE, data) == "name: script\nscript: a.py\nnum_workers: 2\n"


def test_a_new_file_is_of_the_kind_of_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.script.yaml"
    assert call("init", str(path)) == 0
    assert path.read_text() == SCRIPT_FILE.template()
    assert call("init", str(tmp_path / "b.script.yaml"), "--model", "tiny-llama") == 1
    assert "is not a training config" in capsys.readouterr().err
    assert call("init", str(tmp_path / "a.train.yaml"), "--model", "tiny-llama") == 0
    assert "id: tiny-llama" in (tmp_path / "a.train.yaml").read_text()


def test_the_schema_of_each_kind_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("schema", "script") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == schema("script")
    valid = jsonschema.Draft202012Validator(printed).is_valid
    assert valid({"script": "a.py", "num_workers": 2, "resources": {"gpus": "auto"}})
    assert valid(parse_value(SCRIPT_FILE.template()))
    assert not valid({"script": "a.py", "workers": 2})
    assert call("schema") == 0
    assert "TrainingConfig" in capsys.readouterr().out
    assert call("schema", "scripts") == 1
    assert "did you mean script?" in capsys.readouterr().err
