"""Tests do not patch our own classes: they pass in the part that a test replaces.

Run it by `python -m tests.checks.patches`.
Allowed are objects of other packages, `sys`, `os` and the environment.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.checks.tracked import ROOT, tracked_files

PACKAGE = "llmops_kernel"
PATCHERS = {"setattr", "delattr", "setitem", "delitem", "patch", "object"}
"""Methods of pytest's monkeypatch and of unittest's mock that replace a part of something."""


def offenders(paths: list[Path]) -> list[str]:
    """Return one line for each patch of something of our package."""
    return [line for path in paths for line in _offenders(path)]


def _offenders(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    ours = _our_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_patcher(node.func) and node.args:
            target = node.args[0]
            if _is_ours(target, ours):
                yield f"{path}:{node.lineno}: patches {ast.unparse(target)} of {PACKAGE}"


def _our_names(tree: ast.Module) -> set[str]:
    """Return the names that stand for something of our package anywhere in the file."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _in_package(node.module or ""):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found = [alias for alias in node.names if _in_package(alias.name)]
            names |= {alias.asname or PACKAGE for alias in found}
    for node in ast.walk(tree):
        names |= set(_made_of(node, names))
    return names


def _made_of(node: ast.AST, ours: set[str]) -> Iterator[str]:
    """Yield names that a statement binds to something of ours: instances, loops, parameters."""
    match node:
        case ast.Assign(targets=targets, value=ast.Call(func=made)) if _is_ours(made, ours):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.For(target=target, iter=values) if _mentions(values, ours):
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
        case ast.arg(arg=name, annotation=kind) if kind is not None and _is_ours(kind, ours):
            yield name


def _mentions(values: ast.expr, ours: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in ours for node in ast.walk(values))


def _in_package(dotted: str) -> bool:
    return dotted == PACKAGE or dotted.startswith(PACKAGE + ".")


def _is_patcher(function: ast.expr) -> bool:
    """Return whether this is `monkeypatch.setattr`, `mock.patch`, `patch.object` or `patch`."""
    if isinstance(function, ast.Name):
        return function.id == "patch"
    if not isinstance(function, ast.Attribute) or function.attr not in PATCHERS:
        return False
    owner = ast.unparse(function.value).rpartition(".")[2]
    return owner in {"monkeypatch", "mp", "patch", "mock", "mocker"}


def _is_ours(target: ast.expr, ours: set[str]) -> bool:
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return _in_package(target.value)
    while isinstance(target, ast.Attribute | ast.Call):
        target = target.func if isinstance(target, ast.Call) else target.value
    return isinstance(target, ast.Name) and target.id in ours


def checked_files() -> list[Path]:
    """Return the Python files of the tests, without this check's own tests."""
    tests = ROOT / "tests"
    own = tests / "checks" / "test_structure.py"
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py" and tests in path.parents and path != own
    ]


def main() -> int:
    """Print every offender; return the exit status."""
    problems = offenders(checked_files())
    print("\n".join(problems) or f"patches: no test patches a part of {PACKAGE}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
