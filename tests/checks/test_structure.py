"""The checks of circles and patched classes find what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import patches, structure
from tests.checks.sizes import above_ceiling


def package(folder: Path, files: dict[str, str]) -> Path:
    """Write a package `house` with these files and return its folder."""
    root = folder / "house"
    for name, text in {"__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def circles_of(folder: Path, files: dict[str, str]) -> list[list[str]]:
    return structure.circles(structure.import_graph(package(folder, files)))


def test_no_files_of_the_package_import_each_other_in_a_circle() -> None:
    graph = structure.import_graph(structure.ROOT / structure.PACKAGE)
    assert len(graph) > 200
    assert structure.circles(graph) == []


@pytest.mark.parametrize(
    "second",
    [
        "from house.a import x\n",
        "import house.a\n",
        "from house import a\n",
        "def f():\n    from house.a import x\n    return x\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.a import x\n",
    ],
    ids=["from", "import", "module", "inside a function", "for type checkers"],
)
def test_a_circle_is_found_however_it_is_closed(tmp_path: Path, second: str) -> None:
    files = {"a.py": "from house.b import y\nx = 1\n", "b.py": second + "y = 1\n"}
    assert circles_of(tmp_path, files) == [["house.a", "house.b"]]


def test_a_longer_circle_through_a_package_is_found(tmp_path: Path) -> None:
    files = {
        "a.py": "from house.part.b import y\n",
        "part/__init__.py": "",
        "part/b.py": "from house.c import z\ny = 1\n",
        "c.py": "def f():\n    import house.a\nz = 1\n",
        "d.py": "import house.a, house.c\n",
    }
    assert circles_of(tmp_path, files) == [["house.a", "house.c", "house.part.b"]]


def test_arrows_in_one_direction_are_no_circle(tmp_path: Path) -> None:
    files = {"a.py": "from house import b, c\n", "b.py": "import house.c\n", "c.py": "import os\n"}
    assert circles_of(tmp_path, files) == []


def test_modules_with_one_importer_are_no_more_than_they_were() -> None:
    graph = structure.import_graph(structure.ROOT / structure.PACKAGE)
    single = structure.single_importers(graph)
    assert above_ceiling({structure.ONE_IMPORTER: structure.per_thousand_lines(len(single))}) == []


def test_a_module_with_one_importer_is_found(tmp_path: Path) -> None:
    files = {
        "a.py": "from house.part.b import x\nfrom house import c\n",
        "part/__init__.py": "",
        "part/b.py": "import house.c\n",
        "c.py": "",
    }
    graph = structure.import_graph(package(tmp_path, files))
    assert structure.single_importers(graph) == {"house.part.b": "house.a"}


def test_no_test_patches_our_own_classes() -> None:
    files = patches.checked_files()
    assert len(files) > 150
    assert patches.offenders(files) == []


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("monkeypatch.setattr(RunStore, 'resolve', None)", "RunStore"),
        ("monkeypatch.setattr(store_module.text, 'MAX', 1)", "store_module.text"),
        ("monkeypatch.delattr('llmops_kernel.store.store.RunStore')", "'llmops_kernel.store"),
        ("mock.patch('llmops_kernel.store.store.RunStore')", "'llmops_kernel.store"),
        ("mock.patch.object(RunStore, 'resolve')", "RunStore"),
        ("store = RunStore()\nmonkeypatch.setattr(store, 'resolve', None)", "store"),
        ("def test(store: RunStore): monkeypatch.setattr(store, 'resolve', None)", "store"),
        ("for owner in (RunStore, list): monkeypatch.setattr(owner, 'x', None)", "owner"),
    ],
)
def test_a_patch_of_our_own_is_found(tmp_path: Path, text: str, target: str) -> None:
    file = tmp_path / "test_x.py"
    imports = (
        "from llmops_kernel.store.store import RunStore\nimport llmops_kernel as store_module\n"
    )
    file.write_text(imports + text + "\n")
    (found,) = patches.offenders([file])
    assert f"patches {target}" in found


@pytest.mark.parametrize(
    "text",
    [
        "monkeypatch.setattr('sys.argv', ['llmops'])",
        "monkeypatch.setattr(time, 'sleep', print)",
        "monkeypatch.setenv('LLMOPS_HOME', '/x')",
        "monkeypatch.chdir(RunStore().root)",
    ],
)
def test_other_patches_are_allowed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "test_x.py"
    file.write_text("import time\nfrom llmops_kernel.store.store import RunStore\n" + text + "\n")
    assert patches.offenders([file]) == []
