"""A kind of run and a provider are named only where CONTRIBUTING.md says: nobody else branches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.kinds.registry import kinds
from tests.checks.structure import ROOT

PACKAGE = ROOT / "llmops_kernel"
KINDS = {kind.name for kind in kinds()}
OWNERS = {
    "llmops_kernel.config.models.script": ("kinds", "train"),
    "llmops_kernel.kinds.script": ("kinds",),
    "llmops_kernel.kinds.script_config": ("kinds",),
    "llmops_kernel.kinds.train": ("kinds",),
    "llmops_kernel.config.models.kuberay": ("config/models", "providers/kuberay"),
}
"""Modules of one kind or one provider -> the folders that may import them."""


def branches_on_a_kind(source: str) -> list[int]:
    """Return the lines that compare a `kind` with the name of one kind of run."""
    compared = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare))
    return [
        node.lineno
        for node in compared
        if any(_is_kind(side) for side in (node.left, *node.comparators))
        and any(_names_a_kind(side) for side in (node.left, *node.comparators))
    ]


def _is_kind(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name == "kind"


def _names_a_kind(node: ast.expr) -> bool:
    inner = node.elts if isinstance(node, ast.Tuple | ast.Set | ast.List) else [node]
    return any(isinstance(one, ast.Constant) and one.value in KINDS for one in inner)


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def files() -> Iterator[tuple[Path, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), path.read_text()


def test_nothing_branches_on_the_name_of_a_kind() -> None:
    found = [f"{path}:{line}" for path, text in files() for line in branches_on_a_kind(text)]
    assert found == []


def test_a_branch_on_a_kind_is_found() -> None:
    source = 'if record.kind == "script":\n  pass\nif kind in ("train", "x"):\n  pass\n'
    assert branches_on_a_kind(source + 'if effect.kind == "nothing":\n  pass\n') == [1, 3]


@pytest.mark.parametrize("module", OWNERS)
def test_what_belongs_to_one_kind_or_provider_is_imported_by_it_alone(module: str) -> None:
    allowed = OWNERS[module]
    found = [
        str(path)
        for path, text in files()
        if module in imported(text) and not str(path).startswith(tuple(f"{a}/" for a in allowed))
    ]
    assert found == []
