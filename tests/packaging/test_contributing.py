"""CONTRIBUTING.md names existing files, every folder of the package, and the real layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TOP = (
    "llmops_kernel", "tests", "extension", "cluster_templates", "notebooks", "binder", "docs",
    ".ci",
)  # fmt: skip


def named_paths(page: str) -> set[str]:
    """Return what stands between backticks or begins a command line and looks like a path."""
    words = re.findall(r"`([\w./-]+)`|^(\.ci/\w+)", page, re.MULTILINE)
    names = {a or b for a, b in words}
    return {
        name
        for name in names
        if name.split("/")[0] in TOP or name.endswith((".md", ".toml", ".txt"))
    }


def test_every_named_path_exists() -> None:
    names = named_paths(PAGE)
    assert len(names) > 40
    assert sorted(name for name in names if not (ROOT / name).exists()) == []


def test_a_path_that_does_not_exist_would_be_noticed() -> None:
    page = (
        "see `llmops_kernel/no_such.py` and `NOTES.md`\n.ci/nothing   # runs\n`make test`, `api`\n"
    )
    assert named_paths(page) == {"llmops_kernel/no_such.py", "NOTES.md", ".ci/nothing"}


def test_every_folder_of_the_package_is_named() -> None:
    package = ROOT / "llmops_kernel"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert len(folders) > 10
    table = PAGE.partition("## Folders")[2].partition("\n## ")[0]
    assert {name for name in folders if f"| `llmops_kernel/{name}` |" not in table} == set()


def test_folders_named_inside_of_a_package_exist() -> None:
    rows = re.findall(r"^\| `([\w/]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    inner = [(folder, name) for folder, text in rows for name in re.findall(r"`([\w/]+)/`", text)]
    assert len(inner) > 8
    assert [(a, b) for a, b in inner if not (ROOT / a / b).is_dir()] == []


def test_the_layers_are_those_of_the_import_linter() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = (c for c in settings["tool"]["importlinter"]["contracts"] if "layers" in c)
    layers = [layer.replace("llmops_kernel.", "") for layer in contract["layers"]]
    shown = PAGE.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [sorted(line.split(" | ")) for line in shown] == [
        sorted(layer.split(" | ")) for layer in layers
    ]


def test_the_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^make ([\w-]+)", PAGE, re.MULTILINE))
    assert {"check", "test", "test-all"} <= targets
    assert {name for name in targets if f"\n{name}: " not in makefile} == set()
