"""Every example of README and documentation is right: commands, Python, YAML."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import yaml

import llmops_kernel
from llmops_kernel import track
from llmops_kernel.agents.rules import AgentRules
from llmops_kernel.cli import main  # noqa: F401  (registers the commands)
from llmops_kernel.cli.app import app
from llmops_kernel.config.models.cluster import TEMPLATES
from llmops_kernel.kinds.reading import file_kinds, from_values
from llmops_kernel.kinds.registry import kind_named
from tests.docs.pages import ROOT, examples, generated, written

_ENDS = {"|", "||", "&&", ";", ">", ">>", "&"}
_MODULES = {"llmops": llmops_kernel, "track": track}


def commands(block: str) -> Iterator[list[str]]:
    """Yield the words after `llmops` of each command in a block of shell."""
    for line in block.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word in _ENDS:
                if words and words[0] == "llmops":
                    yield words[1:]
                words = []
            else:
                words.append(word)


def mistake(words: list[str], *, is_whole: bool = True) -> str:
    """Return what is wrong with a command, found without running it; empty if nothing is.

    One in the middle of a sentence (`is_whole=False`) may lack arguments.
    """
    command: Any = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands"):
        name = words.pop(0) if words else ""
        if name not in command.commands:
            return "" if not is_whole and not name else f"there is no command {name!r}"
        command = command.commands[name]
    parser = command.make_parser(typer.Context(command))
    try:
        values, rest, _ = parser.parse_args(words)
    except Exception as error:
        text = str(getattr(error, "message", error))
        return "" if not is_whole and "requires an argument" in text else text
    for parameter in command.params:
        value = values.get(parameter.name)
        if is_whole and parameter.required and value in (None, ()):
            return f"{parameter.name} is missing"
        kind = getattr(parameter, "type_descriptor", None)  # Typer's --help has none.
        choices = [getattr(c, "value", c) for c in (kind and kind.choices) or ()]
        if isinstance(value, str) and choices and value not in choices:
            return f"{parameter.name} {value!r} is none of {choices}"
    return f"too many words: {rest}" if rest else ""


def test_every_command_of_a_code_block_is_right() -> None:
    checked = [(page, words) for page, block in examples("bash") for words in commands(block)]
    assert len(checked) > 100
    wrong = [(page, words, text) for page, words in checked if (text := mistake(words))]
    assert wrong == []


def test_every_command_in_a_sentence_exists_with_its_options() -> None:
    readme = {"README.md": (ROOT / "README.md").read_text()}
    wrong, checked = [], 0
    for page, text in {**readme, **written(), **generated()}.items():
        for inline in re.findall(r"(?<!`)`llmops ([^`]+)`(?!`)", text):
            first = inline.split()[0]
            if first in ("COMMAND", "--version") or page.endswith(("changelog.md", ".ipynb")):
                continue
            checked += 1
            words = shlex.split(inline.replace("...", ""))
            if problem := mistake(words, is_whole=False):
                wrong.append((page, inline, problem))
    assert checked > 60
    assert wrong == [], wrong


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("submt x.train.yaml", "no command 'submt'"),
        ("submit x.train.yaml --folow", "--folow"),
        ("submit", "missing"),
        ("submit x.train.yaml --priority urgent", "none of"),
        ("down one two three", "too many"),
    ],
)
def test_a_wrong_command_would_be_noticed(words: str, problem: str) -> None:
    assert problem in mistake(words.split())


def test_every_python_block_compiles_and_its_names_exist() -> None:
    blocks = examples("python")
    assert blocks
    for page, block in blocks:
        for node in ast.walk(ast.parse(block, filename=page)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = _MODULES.get(node.value.id)
                assert module is None or hasattr(module, node.attr), (page, node.attr)


def test_every_yaml_block_is_a_config_or_a_part_of_one() -> None:
    bases = {
        "train": {"name": "x", "model": "tiny-llama", "data": "x.jsonl"},
        "score": {"name": "x", "model": "tiny-llama", "input": "x.jsonl"},
        "kuberay": yaml.safe_load((ROOT / "cluster_templates/kind-cpu.yaml").read_text()),
        "local": {},
        "script": {"script": "x.py"},
    }
    blocks = examples("yaml")
    assert blocks
    for page, block in blocks:
        values = yaml.safe_load(block)
        if values.keys() <= AgentRules.model_fields.keys():
            assert AgentRules.model_validate_json(json.dumps(values)), page
            continue
        for name, base in bases.items():
            is_template = name in TEMPLATES
            model = TEMPLATES[name] if is_template else file_kinds()[name].model
            if values.keys() <= model.model_fields.keys():
                whole = {**base, **values}
                if is_template:
                    assert model.model_validate(whole), page
                else:
                    assert from_values(kind_named(name), whole), page
                break
        else:
            pytest.fail(f"{page}: no config has the fields {', '.join(values)}")
