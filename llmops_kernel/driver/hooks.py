"""Loads and calls functions of the user's hooks file, and checks the numbers that they return.

Errors name the user's file and line.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from llmops_kernel.errors import HookError


def load_functions(file: Path, names: Sequence[str]) -> dict[str, Callable[..., Any] | None]:
    """Execute the user's file as a module; return its functions, None for those it lacks.

    Raises HookError.
    """
    if not file.exists():
        raise HookError(
            f"The hooks file {file.name!r} is not in the workspace.",
            remedy="check hooks.file in the config; the path starts at the workspace folder",
        )
    module = _execute(file)
    functions = {name: getattr(module, name, None) for name in names}
    for name, hook in functions.items():
        if hook is not None and not callable(hook):
            raise HookError(
                f"{name} in {file.name} is a {type(hook).__name__}, not a function.",
                remedy=f"write `def {name}(...):`",
            )
    return functions


def _execute(file: Path) -> ModuleType:
    # The folder is added to sys.path so that hooks can import the user's other modules.
    sys.path.insert(0, str(file.parent))
    name = f"llmops_hooks_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise HookError(
            f"{file.name} is not a Python file.", remedy="name a .py file in hooks.file"
        )
    module = importlib.util.module_from_spec(spec)
    # Registered so that what the hooks define can be pickled and inspected.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HookError(
            f"{file.name} cannot be imported: {type(error).__name__}: {error}",
            remedy="run the file with Python to see the same error",
        ) from error
    return module


def call(hook: Callable[..., Any], *arguments: Any, where: str = "") -> Any:
    """Call a hook and return its result. Raises HookError from the hook's own exception."""
    try:
        return hook(*arguments)
    except Exception as error:
        name = getattr(hook, "__name__", "hook")
        row = f" on {where}" if where else ""
        raise HookError(
            f"The hook {name} raised {type(error).__name__}{row}: {error}",
            remedy=f"see {_location(error, hook)}",
        ) from error


def _location(error: BaseException, hook: Callable[..., Any]) -> str:
    """Return `file:line` of the deepest frame in the hook's own file."""
    try:
        source = inspect.getsourcefile(hook) or ""
    except TypeError:
        source = ""
    line = None
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == source:
            line = frame.tb_lineno
        frame = frame.tb_next
    name = Path(source).name or "the hook"
    return f"{name}:{line}" if line else name


def hook_numbers(
    result: Any,
    *,
    hook: str,
    reserved: Collection[str] = (),
    why_reserved: str = "evaluation.metrics computes already",
) -> dict[str, float | None]:
    """Return what the hook of that name gave as numbers by name; None where it knows none.

    Raises HookError for anything else, also for names in `reserved`, with the reason
    `why_reserved`.
    """
    if not isinstance(result, Mapping):
        raise HookError(
            f"The hook {hook} returned a {type(result).__name__}, not a dict.",
            remedy='return numbers by name, as {"accuracy": 1.0}',
        )
    for name in result:
        _check_name(name, hook, reserved, why_reserved)
    return {name: _number(name, value, hook) for name, value in result.items()}


def _check_name(name: Any, hook: str, reserved: Collection[str], why_reserved: str) -> None:
    if not isinstance(name, str) or not name:
        raise HookError(
            f"The hook {hook} names a metric {name!r}, which is not a text.",
            remedy='use names such as "accuracy"',
        )
    if name in reserved:
        raise HookError(
            f"The hook {hook} returned {name!r}, which {why_reserved}.",
            remedy="give it another name, or take the metric out of evaluation.metrics",
        )


def _number(name: str, value: Any, hook: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, str) or not math.isfinite(number):
        raise HookError(
            f"The hook {hook} returned {value!r} for {name!r}, which is not a finite number.",
            remedy="return None for a row that cannot have this metric",
        )
    return number
