"""The config files of the kind `script`, and the config of a Python file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.assist.template import new_file
from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.config.problems import Problem, no_such_file

_MAX_NAME = 40
_HEAD = """\
Script config: a training script of yours and how it is started. Lines with a default value may
be deleted. Check it with `llmops check FILE` and run it with `llmops submit FILE`.
"""


def values_of(path: Path, workspace: Path) -> dict[str, Any]:
    """Return the config of a Python file; its path is relative to the workspace if it is below."""
    own, root = path.resolve(), workspace.resolve()
    shown = own.relative_to(root) if own.is_relative_to(root) else own
    return {"name": run_name(path), "script": str(shown)}


def run_name(path: Path) -> str:
    """`My_Train.py` -> `my-train`."""
    words = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    return words[:_MAX_NAME].strip("-") or "script"


def check_files(
    config: ScriptConfig, workspace: Path, /, *, wrong: Collection[str] = ()
) -> list[Problem]:
    """Return what is wrong with the script: missing, no Python file, or outside the workspace."""
    path = workspace / config.script
    if "script" in wrong:
        return []
    if path.suffix != ".py":
        message, suggestion = "a script is a Python file", "name a file that ends in .py"
    elif not path.resolve().is_relative_to(workspace.resolve()):
        message = f"not below the workspace {workspace}, the folder that is uploaded to the cluster"
        suggestion = "choose the workspace with --workspace, or workspace= in Python"
    elif not path.is_file():
        names = [str(file.relative_to(workspace)) for file in sorted(workspace.glob("*.py"))]
        return [no_such_file("script", config.script, workspace, names)]
    else:
        return []
    return [Problem(path="script", message=message, value=config.script, suggestion=suggestion)]


def template() -> str:
    """Return the text of a new script config, every field explained."""
    return new_file(_HEAD, ScriptConfig(script="train.py"))


def effect(config: ScriptConfig) -> list[str]:
    """Describe what is started, and on what."""
    line = shlex.join([config.script, *config.args])
    if config.workers is None:
        return [f"Runs {line} once, as `python {config.script}` would."]
    gpus = config.resources.gpus
    each = "1 GPU where the cluster has GPUs" if gpus == "auto" else counted(gpus, "GPU")
    return [
        f"Runs {line} on {counted(config.workers, 'worker')}, as `torchrun` would.",
        f"Each worker reserves {counted(config.resources.cpus, 'CPU')} and {each}.",
    ]


SCRIPT_FILE = Kind(
    name="script",
    title="Script config",
    globs=("*.script.yaml", "*.script.yml"),
    new_file="new.script.yaml",
    model=ScriptConfig,
    template=template,
    effect=effect,
    check_files=check_files,
    remedy="a script config has `script: train.py`, and may have args, num_workers, resources, env",
    files={"script": (".py",)},
)
