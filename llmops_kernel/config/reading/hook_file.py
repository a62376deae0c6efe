"""Check the user's hooks file by its syntax tree, without executing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmops_kernel.config.problems import Problem, closest, did_you_mean, listed

HOOKS: dict[str, tuple[str, ...]] = {
    "format_example": ("row",),
    "build_model": ("config",),
    "compute_metrics": ("predictions", "references", "rows"),
    "score_row": ("prediction", "reference", "row"),
    "callbacks": (),
}
"""Hook -> the positional arguments it is called with."""
_NAME = "hooks.file"
_SURE = 0.75  # a helper such as `formatted` must not pass for a misspelt hook
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_hooks(path: Path | None, workspace: Path, given: str | None) -> Iterator[Problem]:
    """Check the hook file.

    `path` is the file, `given` its name in the config; both None without hooks.
    """
    if path is None or given is None:
        return
    if not path.is_file():
        yield _missing(path, given)
        return
    if not path.resolve().is_relative_to(workspace.resolve()):
        hint = f"move it below {workspace}, or submit with that folder as the workspace"
        yield _problem(given, "is outside the workspace, so it is not uploaded with the run", hint)
    tree = _parse(path, given)
    if isinstance(tree, Problem):
        yield tree
        return
    yield from _check_tree(tree, given)


def defined_hooks(path: Path | None) -> frozenset[str] | None:
    """Names of the hooks in the file; None when it cannot be parsed."""
    if path is None or not path.is_file():
        return frozenset()
    tree = _parse(path, path.name)
    return None if isinstance(tree, Problem) else frozenset(_defined(tree)) & HOOKS.keys()


def _missing(path: Path, given: str) -> Problem:
    if path.is_dir():
        return _problem(given, "is a folder", "name the .py file in it")
    known = sorted(file.name for file in path.parent.glob("*.py"))
    hint = did_you_mean(path.name, known) or (
        f"there are: {listed(known)}" if known else "paths start at the workspace folder"
    )
    return Problem(path=_NAME, message="no such file", value=given, suggestion=hint)


def _parse(path: Path, given: str) -> ast.Module | Problem:
    try:
        return ast.parse(path.read_bytes(), filename=given)
    except SyntaxError as error:
        written = f": `{error.text.strip()}`" if error.text and error.text.strip() else ""
        return _problem(
            given, f"not Python ({error.msg}){written}", "correct that line", error.lineno
        )
    except (OSError, ValueError) as error:
        return _problem(given, f"cannot be read: {error}", "write it again as UTF-8 text")


def _check_tree(tree: ast.Module, given: str) -> Iterator[Problem]:
    defined = _defined(tree)
    misspelt = False
    for name, node in defined.items():
        if name in HOOKS:
            if isinstance(node, _Function):
                yield from _check_signature(name, node, given)
        elif isinstance(node, _Function) and not name.startswith("_"):
            match = closest(name, HOOKS, cutoff=_SURE)
            if match is not None and match not in defined:
                misspelt = True
                hint = f"did you mean {match}?"
                yield _problem(given, f"no hook is called {name}", hint, node.lineno)
    if not misspelt and not defined.keys() & HOOKS.keys() and not _star_import(tree):
        signatures = [f"{name}({', '.join(arguments)})" for name, arguments in HOOKS.items()]
        yield _problem(given, "defines no hook", f"define one of {', '.join(signatures)}")


def _defined(tree: ast.Module) -> dict[str, ast.stmt]:
    """Names the module binds at its top level, also inside `if` and `try`; the last one counts."""
    return {name: node for node in _statements(tree.body) for name in _bound(node)}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _statements(node.body)
            yield from _statements(getattr(node, "orelse", []))
            yield from _statements(getattr(node, "finalbody", []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _star_import(tree: ast.Module) -> bool:
    return any("*" in _bound(node) for node in _statements(tree.body))


def _check_signature(name: str, node: _Function, given: str) -> Iterator[Problem]:
    wanted = HOOKS[name]
    signature = f"write `def {name}({', '.join(wanted)}):`"
    if isinstance(node, ast.AsyncFunctionDef):
        yield _problem(given, f"{name} is async", signature, node.lineno)
        return
    if node.decorator_list:
        return  # a decorator may change what it takes
    arguments = node.args
    most = len(arguments.posonlyargs) + len(arguments.args)
    least = most - len(arguments.defaults)
    only_named = [
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    fits = least <= len(wanted) and (len(wanted) <= most or arguments.vararg is not None)
    if not fits or only_named:
        takes = ", ".join(a.arg for a in [*arguments.posonlyargs, *arguments.args]) or "nothing"
        takes += f" and needs {', '.join(only_named)} by name" if only_named else ""
        calls = f"({', '.join(wanted)})" if wanted else "nothing"
        message = f"{name} takes {takes}, but is called with {calls}"
        yield _problem(given, message, signature, node.lineno)


def _problem(given: str, message: str, suggestion: str, line: int | None = None) -> Problem:
    return Problem(path=_NAME, message=message, suggestion=suggestion, file=given, line=line)
