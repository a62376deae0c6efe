"""What the README says exists."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_every_command_exists() -> None:
    from llmops_kernel.cli import main  # noqa: F401  (registers the commands)
    from llmops_kernel.cli.app import EXAMPLES

    named = set(re.findall(r"\bllmops ([a-z]+)\b", README))
    assert named
    assert named - set(EXAMPLES) == set()


def test_every_make_target_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert named
    for target in named:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_python_examples_use_names_that_exist() -> None:
    import llmops_kernel

    examples = _blocks("python")
    assert examples
    for example in examples:
        for node in ast.walk(ast.parse(example)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if node.value.id == "llmops":
                assert hasattr(llmops_kernel, node.attr), node.attr


def test_yaml_examples_are_right_configs() -> None:
    from llmops_kernel.kinds.reading import from_values
    from llmops_kernel.kinds.registry import kind_named

    first, *others = (yaml.safe_load(example) for example in _blocks("yaml"))
    read = []
    for values in (first, *others):
        name = "score" if "input" in values else "train"
        # A section alone is one of the first config.
        whole = values if "model" in values else {**first, **values}
        assert from_values(kind_named(name), whole).model.id
        read.append(name)
    assert read == ["train", "train", "score"]


def test_the_first_config_trains_with_the_data_that_is_shipped(tmp_path: Path) -> None:
    from llmops_kernel.cli.config_check import check_all

    shutil.copytree(ROOT / "notebooks" / "data", tmp_path / "data")
    shutil.copy(ROOT / "notebooks" / "menu_hooks.py", tmp_path)
    config = tmp_path / "lora.train.yaml"
    # The tokenizer of the small model is there at once; the rows and the hooks are what is checked.
    config.write_text(_blocks("yaml")[0].replace("SmolLM2-135M-Instruct", "tiny-llama"))
    (found,) = check_all([config], [], workspace=None)
    assert (found.problems, found.warnings) == ([], [])
    assert any("762 rows of data/menu-train.jsonl were read" in note for note in found.checked)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_every_linked_file_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_map_names_what_is_there() -> None:
    tree = re.search(r"```text\n(.*?)```", README, flags=re.DOTALL)
    assert tree is not None
    for name in re.findall(r"^([\w./-]+)  ", tree[1], flags=re.MULTILINE):
        assert (ROOT / name).exists(), name
