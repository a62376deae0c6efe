"""Find circles of files that import each other, and count modules with one importer.

Run it by `python -m tests.checks.structure`.
Every import counts: at the top of a file, inside a function, and for type checkers only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.checks.sizes import CEILINGS, above_ceiling, count

ONE_WAY = ("llmops_kernel.providers", "llmops_kernel.providers.kuberay")
"""Packages whose folders must not import each other both ways."""
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "llmops_kernel"

ONE_IMPORTER = "modules with one importer for 1,000 lines of code"

Graph = Mapping[str, set[str]]


def module_name(path: Path, *, root: Path) -> str:
    """Return the dotted name of a file below `root`; a package is named by its folder."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield each dotted name that a file imports, `from a import b` as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(package: Path) -> Graph:
    """Return which files of a package import which: an edge goes to the file that is named."""
    root = package.parent
    files = {module_name(path, root=root): path for path in sorted(package.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        targets = {_file_of(imported, files) for imported in imported_names(_parse(path))}
        graph[name] = {target for target in targets if target and target != name}
    return graph


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _file_of(imported: str, files: Mapping[str, Path]) -> str | None:
    """Return the longest prefix of a dotted name that is a file."""
    while imported:
        if imported in files:
            return imported
        imported = imported.rpartition(".")[0]
    return None


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of files in which each reaches each other (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            cut = stack.index(node)
            group = sorted(stack[cut:])
            del stack[cut:]
            if len(group) > 1:
                found.append(group)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def two_way_arrows(graph: Graph, package: str) -> list[tuple[str, str]]:
    """Return the pairs of folders directly below a package that import each other."""
    arrows = {
        (source, target)
        for file, imported in graph.items()
        for name in imported
        if (source := _folder_below(package, file)) and (target := _folder_below(package, name))
    }
    return sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows)


def _folder_below(package: str, name: str) -> str | None:
    """Return the first part of a dotted name below a package; None for one outside of it."""
    inside = name.removeprefix(f"{package}.")
    return None if inside == name else inside.partition(".")[0]


def single_importers(graph: Graph) -> dict[str, str]:
    """Return module -> the only other one that imports it; packages are left out."""
    packages = {name.rpartition(".")[0] for name in graph}
    importers: dict[str, list[str]] = {name: [] for name in graph if name not in packages}
    for name, targets in graph.items():
        for target in targets & importers.keys():
            importers[target].append(name)
    return {name: found[0] for name, found in importers.items() if len(found) == 1}


def per_thousand_lines(modules: int) -> float:
    """Return a number of the package's modules for each 1,000 lines of its code."""
    return modules / count((ROOT / PACKAGE).rglob("*.py")).code * 1000


def main() -> int:
    """Print every circle and two-way arrow, and what is above a ceiling; return the exit status."""
    graph = import_graph(ROOT / PACKAGE)
    groups = circles(graph)
    both_ways = [(package, *pair) for package in ONE_WAY for pair in two_way_arrows(graph, package)]
    for group in groups:
        print(f"circle of files: {', '.join(group)}")
    for package, one, other in both_ways:
        print(f"{package}: {one} and {other} import each other")
    single = len(single_importers(graph))
    figures = {ONE_IMPORTER: per_thousand_lines(single)}
    problems = above_ceiling(figures)
    print("\n".join(problems), end="\n" if problems else "")
    print(
        f"structure: {len(groups)} circles of files,"
        f" {single} modules with one importer, {figures[ONE_IMPORTER]:.2f} for 1,000 lines of code"
        f" (at most {CEILINGS[ONE_IMPORTER]})"
    )
    return int(bool(groups or both_ways or problems))


if __name__ == "__main__":
    sys.exit(main())
