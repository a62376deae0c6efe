"""Folders of a provider import each other one way only, and the check would notice otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.structure import ONE_WAY, PACKAGE, ROOT, import_graph, two_way_arrows


@pytest.mark.parametrize("package", ONE_WAY)
def test_no_two_folders_import_each_other(package: str) -> None:
    assert two_way_arrows(import_graph(ROOT / PACKAGE), package) == []


def test_folders_that_import_each_other_are_found(tmp_path: Path) -> None:
    files = {
        "p/one/a.py": "from p.two.b import x\n",
        "p/two/b.py": "import p.three.c\n",
        "p/two/d.py": "def f():\n    from p.one import a\n",
        "p/three/c.py": "from p.top import y\n",
        "p/top.py": "",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    assert two_way_arrows(import_graph(tmp_path / "p"), "p") == [("one", "two")]
