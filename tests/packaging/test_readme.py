"""What the README says exists; its commands, links and limits are checked in `tests/docs`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml

from llmops_kernel.cli.config_check import check_all
from llmops_kernel.kinds.reading import from_values
from llmops_kernel.kinds.registry import kind_named

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
(CONFIG,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)


def test_every_make_target_exists() -> None:
    pages = [README, *(path.read_text() for path in (ROOT / "docs").rglob("index.md"))]
    named = {name for page in pages for name in re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)\b", page)}
    assert {"demo", "docs"} <= named
    for target in named:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_the_config_is_right_and_names_no_other_model() -> None:
    assert from_values(kind_named("train"), yaml.safe_load(CONFIG)).model.id == (
        "SmolLM2-135M-Instruct"
    )


def test_the_config_trains_with_the_data_that_is_shipped(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "notebooks" / "data", tmp_path / "data")
    shutil.copy(ROOT / "notebooks" / "menu_hooks.py", tmp_path)
    config = tmp_path / "lora.train.yaml"
    # The tokenizer of the small model is there at once; the rows and the hooks are what is checked.
    config.write_text(CONFIG.replace("SmolLM2-135M-Instruct", "tiny-llama"))
    (report,) = check_all([config], [], workspace=None)
    assert (report.problems, report.warnings) == ([], [])
    assert any("762 rows of data/menu-train.jsonl were read" in note for note in report.checked)
