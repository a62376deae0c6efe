"""What a person lets agents do: `agents.yaml` of the home folder, and flags of `llmops mcp`.

Without either an agent reads. Starting, stopping and changing costs money or somebody's work, so
each is named by a person, with a budget. Both are read again with each call.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmops_kernel.config.problems import Problem, config_error
from llmops_kernel.errors import AgentError, ConfigError
from llmops_kernel.services.folders import home
from llmops_kernel.store.record import PRIORITIES, Priority

Permission = Literal["data", "submit", "stop", "note", "clusters", "others"]
"""`data`: look at rows, which runs the workspace's hooks on this machine; `submit`: submit, and
submit and retry its own runs again; `stop`, `note`: its own runs; `clusters`: start and stop those
that are named; `others`: retry, stop and note runs of people and of other agents too."""
FILE = "agents.yaml"
HOW_TO_ALLOW = "a person can allow it in agents.yaml, or with a flag of `llmops mcp`"
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
T = TypeVar("T", bound="float | int")


class Budget(BaseModel):
    """What all agents of this home may use together, until a person begins a new budget."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    runs: int = Field(5, ge=0)
    """Submissions and retries."""
    gpu_hours: Amount | None = 1.0
    """GPUs times hours that they were held; null: no limit."""
    money: Amount | None = None
    """In the currency of the cluster templates' prices; null: no limit."""


class AgentRules(BaseModel):
    """The fields of `agents.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    allow: tuple[Permission, ...] = ()
    budget: Budget = Budget()
    workspaces: tuple[Path, ...] = ()
    """Folders of configs and code; empty: the one that the server was started in."""
    clusters: tuple[str, ...] = ("local",)
    """Clusters that an agent may submit to, and with `clusters` start and stop."""
    priority: Priority = "normal"
    """The highest one of its runs."""
    name: str = Field("", max_length=60)
    """What runs say of the agent; empty: the name that the client gives itself."""
    jupyter: bool = False
    """Whether the tools are in Jupyter too (`jupyter_server_mcp`), on a port without a token."""

    def require(self, permission: Permission) -> None:
        """Raise AgentError unless a person has allowed it."""
        if permission not in self.allow:
            raise AgentError(
                f"Nobody has allowed {permission!r} to agents here",
                remedy=f"{HOW_TO_ALLOW}: allow: [{', '.join((*self.allow, permission))}]",
            )

    def require_cluster(self, name: str) -> None:
        """Raise AgentError unless agents may use the cluster."""
        if name not in self.clusters:
            raise AgentError(
                f"Agents may not use cluster {name!r}",
                remedy=f"use one of {', '.join(self.clusters) or 'none'}; {HOW_TO_ALLOW}: clusters",
            )

    def require_priority(self, priority: Priority) -> None:
        """Raise AgentError for a higher priority than agents may have."""
        if PRIORITIES.index(priority) > PRIORITIES.index(self.priority):
            raise AgentError(
                f"Runs of agents have at most {self.priority} priority, not {priority}",
                remedy=f"{HOW_TO_ALLOW}: priority",
            )

    def folder(self, path: str | Path = "") -> Path:
        """Return a path in one of the workspaces, links resolved. Raises AgentError for others.

        A relative one begins in the first workspace; the empty one is that folder.
        """
        roots = [root.expanduser().resolve() for root in self.workspaces] or [_own_folder()]
        chosen = (roots[0] / Path(path).expanduser()).resolve()
        if not any(chosen.is_relative_to(root) for root in roots):
            raise AgentError(
                f"{chosen} is outside of the folders that agents may use",
                remedy=f"use {', '.join(map(str, roots))}; {HOW_TO_ALLOW}: workspaces",
            )
        return chosen


def _own_folder() -> Path:
    """Return the folder that the server was started in; a whole home is no workspace."""
    folder = Path.cwd().resolve()
    if folder in (Path.home().resolve(), Path(folder.anchor)):
        raise AgentError(
            f"No workspace is named, and the server was started in {folder}",
            remedy=f"{HOW_TO_ALLOW}: workspaces, or --workspace FOLDER",
        )
    return folder


def rules_file() -> Path:
    """Return the path of `agents.yaml`, which need not exist."""
    return home() / FILE


def read_rules(path: Path) -> AgentRules | None:
    """Return the rules of a file; None without one. Raises ConfigError with all mistakes."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", remedy="repair or remove it") from None
    try:
        # Strict types, with the lists of YAML for tuples and its texts for paths.
        return AgentRules.model_validate_json(json.dumps(yaml.safe_load(text) or {}))
    except (yaml.YAMLError, TypeError) as error:
        line = str(error).splitlines()[0]
        raise ConfigError(f"{path} is no valid YAML: {line}", remedy="correct the line") from None
    except ValidationError as error:
        problems = [
            Problem(
                path=".".join(map(str, each["loc"])),
                message=each["msg"],
                value=each["input"],
                file=str(path),
            )
            for each in error.errors()
        ]
        raise config_error(problems) from None


# --- The rules of a call: the file, which flags can only narrow ---


_FLAGS: ContextVar[dict[str, Any] | None] = ContextVar("llmops_agent_flags", default=None)


def set_flags(flags: dict[str, Any]) -> None:
    """Set the fields that this server was started with, budget fields as `budget.runs`.

    Raises ConfigError for values that a file could not have either.
    """
    _flagged(flags)
    _FLAGS.set(flags)


def current_rules() -> AgentRules:
    """Return the rules that hold now. Raises ConfigError where the file is wrong.

    Where there is a file, flags narrow it: a client's settings, which an agent may be able to
    write, do not allow more than the file of the home does.
    """
    of_file, flags = read_rules(rules_file()), _FLAGS.get() or {}
    return _flagged(flags) if of_file is None else _narrowed(of_file, flags)


def _flagged(flags: dict[str, Any]) -> AgentRules:
    budget = {n.removeprefix("budget."): v for n, v in flags.items() if n.startswith("budget.")}
    others = {name: value for name, value in flags.items() if not name.startswith("budget.")}
    try:
        text = json.dumps({**others, "budget": budget}, default=str)
        return AgentRules.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{name}: {first['msg']}", remedy="llmops mcp --help") from None


def _narrowed(rules: AgentRules, flags: dict[str, Any]) -> AgentRules:
    if not flags:
        return rules
    narrow, changes = _flagged(flags), dict[str, Any]()
    for name in ("allow", "clusters"):
        if name in flags:
            kept = getattr(narrow, name)
            changes[name] = tuple(each for each in getattr(rules, name) if each in kept)
    if "workspaces" in flags:
        changes["workspaces"] = tuple(rules.folder(path) for path in narrow.workspaces)
    if "priority" in flags:
        changes["priority"] = min(rules.priority, narrow.priority, key=PRIORITIES.index)
    if "name" in flags and not rules.name:
        changes["name"] = narrow.name
    limits = {
        name: _least(getattr(rules.budget, name), flags[f"budget.{name}"])
        for name in Budget.model_fields
        if f"budget.{name}" in flags
    }
    return rules.model_copy(update={**changes, "budget": rules.budget.model_copy(update=limits)})


def _least(first: T | None, second: T | None) -> T | None:
    known = [each for each in (first, second) if each is not None]
    return min(known) if known else None
