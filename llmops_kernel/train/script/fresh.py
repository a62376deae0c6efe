"""Find why a script needs a new interpreter: what it sets or brings is too late for a fork."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.warm.env_reads import EnvReads
from llmops_kernel.warm.plan import is_of_interpreter, is_too_late, python_path, shadowed_by

_SETS = re.compile(r"\benviron|\bputenv\b|\bunsetenv\b")
_IMPORTS = re.compile(
    r"(?:^|;)[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]*\)|[ \t][\w,* \t]+)"
    r"|import[ \t]+([\w., \t]+))",
    re.M,
)
_COMMENT = re.compile(r"#.*")
_NAME = re.compile(r"[A-Z][A-Z0-9_]+")
_MOST_FILES = 100
_CHANGES = frozenset({"setdefault", "update", "pop", "clear", "putenv", "unsetenv", "__setitem__"})


def why_cold(config: ScriptConfig, workspace: Path, *, reads: Callable[[], EnvReads]) -> str:
    """Return the reason in a forked process, for the list of runs; empty if a fork will do.

    `reads` returns the variables that the loaded libraries have read.
    """
    path = workspace / config.script
    if changed := changed_by(config.env):
        env_reads = reads()
        if late := [name for name in changed if is_too_late(name, env_reads)]:
            return f"`env` sets what is read when libraries load: {', '.join(late)}"
    loaded = {name.partition(".")[0] for name in sys.modules} - {"llmops_kernel", "__main__"}
    folders = [*python_path(dict(config.env), str(workspace)), str(path.parent)]
    checked = {os.path.realpath(folder) for folder in sys.path}
    for folder in dict.fromkeys(folders):
        if os.path.realpath(folder) not in checked and (why := shadowed_by(folder, loaded)):
            return why
    for file in reached(path, workspace):
        names = [name for name in variables_set(_text(file)) if not is_of_interpreter(name)]
        env_reads = reads() if names else EnvReads()
        if names := [name for name in names if is_too_late(name, env_reads)]:
            listed = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            return f"{_shown(file, workspace)} sets what is read when libraries load: {listed}"
    return ""


def changed_by(env: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that have another value in this process."""
    return [name for name, value in env.items() if os.environ.get(name) != value]


def reached(script: Path, workspace: Path) -> Iterator[Path]:
    """Yield the script and the modules of the workspace that it imports, directly or not."""
    waiting, seen = [script], {script}
    while waiting and len(seen) <= _MOST_FILES:
        file = waiting.pop(0)
        yield file
        for name in _imported(_text(file)):
            stem = name.lstrip(".")
            roots = [script.parent, workspace] if stem == name else [_package(file, name)]
            for root in roots:
                for module_file in _files_of(root, stem):
                    if module_file not in seen:
                        seen.add(module_file)
                        waiting.append(module_file)


def _imported(text: str) -> Iterator[str]:
    """Yield each module that an import names, and what may be a module of a package."""
    for match in _IMPORTS.finditer(text):
        names = _COMMENT.sub("", match[2] or match[3]).strip("() \t\n").split(",")
        parts = [part.split()[0] for part in names if part.strip()]
        if match[1]:
            yield match[1]
            yield from (
                f"{match[1].rstrip('.')}.{part}" if match[1].strip(".") else match[1] + part
                for part in parts
            )
        else:
            yield from parts


def _package(file: Path, name: str) -> Path:
    dots = len(name) - len(name.lstrip("."))
    return file.parents[min(dots, len(file.parents)) - 1]


def _files_of(root: Path, name: str) -> Iterator[Path]:
    """Yield the files that `import a.b` runs: of the package, and of the module."""
    place = root
    for part in filter(None, name.split(".")):
        place = place / part
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file


def variables_set(text: str) -> list[str]:
    """Return the environment variables that a program changes, as far as its text names them.

    A value that is the variable's own already is no change. Where a name is only known when the
    program runs, each text in it that may be a name counts.
    """
    if not _SETS.search(text):
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []  # Running it says what is wrong.
    variables: dict[str, None] = {}
    is_open = False
    for node in ast.walk(tree):
        for name, value in _changes(node):
            if name is None:
                is_open = True
            elif value is None or os.environ.get(name) != value:
                variables[name] = None
    if is_open:
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        variables |= dict.fromkeys(
            text for text in texts if isinstance(text, str) and _NAME.fullmatch(text)
        )
    return list(variables)


def _changes(node: ast.AST) -> Iterator[tuple[str | None, str | None]]:
    """Yield (name, value) of each change in one statement; None for an expression."""
    targets: Collection[ast.expr] = ()
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
        if isinstance(node, ast.AugAssign) and _is_environ(node.target):
            yield from _items(node.value)
    for target in targets:
        for child in ast.walk(target):  # One of several is in a tuple.
            is_set = isinstance(child, ast.Subscript) and not isinstance(child.ctx, ast.Load)
            if is_set and _is_environ(child.value):  # type: ignore[attr-defined]
                value = _constant(getattr(node, "value", None)) if child is target else None
                yield _constant(child.slice), value  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
        yield from _called(node)


def _called(call: ast.Call) -> Iterator[tuple[str | None, str | None]]:
    is_name = isinstance(call.func, ast.Name)
    function = call.func.id if isinstance(call.func, ast.Name) else call.func.attr  # type: ignore[attr-defined]
    if function not in _CHANGES:
        return
    if function in ("putenv", "unsetenv"):
        yield _constant(call.args[0] if call.args else None), None
    elif is_name or not _is_environ(call.func.value):  # type: ignore[attr-defined]
        return
    elif function == "update":
        yield from ((word.arg, _constant(word.value)) for word in call.keywords)
        for argument in call.args:
            yield from _items(argument)
    elif function == "setdefault":
        name, value = [*map(_constant, call.args), None, None][:2]
        yield name, os.environ.get(name or "", value)
    else:
        yield _constant(call.args[0] if call.args else None), None


def _items(value: ast.expr) -> Iterator[tuple[str | None, str | None]]:
    if isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            yield _constant(key), _constant(item)
    else:
        yield None, None


def _is_environ(node: ast.expr) -> bool:
    """Return whether it is `os.environ`, or `environ` as it was imported."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name == "environ"


def _constant(node: ast.expr | None) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[union-attr]


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _shown(file: Path, workspace: Path) -> str:
    return str(file.relative_to(workspace)) if file.is_relative_to(workspace) else file.name
