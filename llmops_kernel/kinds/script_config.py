"""Reads what is submitted as a script: a Python file with arguments, or a `*.script.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.config.reading.check import validated
from llmops_kernel.config.reading.origins import Origins
from llmops_kernel.config.reading.overrides import Overrides, apply_overrides
from llmops_kernel.config.reading.yaml_source import Source, parse_yaml, read_yaml

PATTERN = "*.script.yaml"
_ENDINGS = (".py", ".script.yaml", ".script.yml")
_MAX_NAME = 40
_REMEDY = "a script config has `script: train.py`, and may have args, num_workers, resources, env"


def is_script(path: str | Path) -> bool:
    """Return True for a Python file and for a script config, by the name."""
    return str(path).endswith(_ENDINGS)


def load_script(
    path: Path, overrides: Overrides = (), *, workspace: Path | None = None
) -> ScriptConfig:
    """Read a script config, or make the one of a Python file. Raises ConfigError.

    `workspace`: what the path in a Python file's config is relative to; default its folder.
    """
    if path.suffix == ".py":
        own, root = path.resolve(), (workspace or path.parent).resolve()
        shown = own.relative_to(root) if own.is_relative_to(root) else own
        data = {"name": run_name(path), "script": str(shown)}
        return script_from_dict(data, overrides)
    source = read_yaml(path.expanduser(), remedy=_REMEDY, siblings=PATTERN)
    return _script(source, overrides)


def script_from_text(text: str, overrides: Overrides = (), *, name: str) -> ScriptConfig:
    """Read the text of a script config; `name` is what error messages call it."""
    return _script(parse_yaml(text, file=name, remedy=_REMEDY), overrides)


def _script(source: Source, overrides: Overrides) -> ScriptConfig:
    data, wrong = apply_overrides(ScriptConfig, source.data, overrides, origins=source.origins)
    problems = [*source.problems, *wrong]
    return validated(ScriptConfig, data, origins=source.origins, problems=problems, remedy=_REMEDY)


def script_from_dict(data: Mapping[str, Any], overrides: Overrides = ()) -> ScriptConfig:
    """Check a run record's config with changes. Raises ConfigError."""
    origins = Origins()
    merged, wrong = apply_overrides(ScriptConfig, data, overrides, origins=origins)
    return validated(ScriptConfig, merged, origins=origins, problems=wrong, remedy=_REMEDY)


def run_name(path: Path) -> str:
    """`My_Train.py` -> `my-train`."""
    words = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    return words[:_MAX_NAME].strip("-") or "script"
