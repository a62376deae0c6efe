"""The base classes of all configs: frozen sections that refuse unknown keys."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from llmops_kernel.config.names import Alias


def set_descriptions(model: type[BaseModel]) -> None:
    """Give the fields of a class that has just been made the descriptions of its source."""
    module = sys.modules.get(model.__module__)
    file = getattr(module, "__file__", None)
    texts = _texts(file).get(model.__name__, {}) if file else {}
    for name, text in texts.items():
        field = model.model_fields.get(name)
        if field is not None and field.description is None:
            field.description = text


def about(field: FieldInfo) -> str:
    """Return the field's description on one line."""
    return " ".join((field.description or "").split())


@cache
def _texts(file: str) -> Mapping[str, Mapping[str, str]]:
    """Return class -> field -> text of a source file; empty where it cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {node.name: _fields(node) for node in classes}


def _fields(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, below in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[statement.target.id] = inspect.cleandoc(below.value.value)
    return found


NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
CLUSTER_NAME_PATTERN: Final = r"^[a-z]([a-z0-9-]{0,51}[a-z0-9])?$"
GROUP_PATTERN: Final = r"^[a-z]([a-z0-9-]{0,45}[a-z0-9])?$"
MOUNT_PATTERN: Final = r"^/[^:]*$"
ENV_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
MODULE_PATTERN: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
NODE_PRICE_ENV_VAR: Final = "LLMOPS_NODE_PRICE"
"""Set on each node that has a price: so a node keeps the one it was started with, whatever the
template says later."""
WITHOUT_RULES: Final = {"rules": False}
"""Context of a validation that checks each field but no rule between fields."""


@dataclass(frozen=True)
class Broken:
    """A broken rule; the user reads `message` and `suggestion`."""

    path: str
    """Field that the user would change."""
    message: str
    suggestion: str
    uses: tuple[str, ...] = ()
    """Other fields that the rule reads; it is not reported while one of them is wrong."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}; {self.suggestion}"


@dataclass(frozen=True)
class RemovedField:
    default: Any
    """The value that says nothing: a file that still has it is read without it."""
    remedy: str


class Section(BaseModel):
    """A frozen part of a config; unknown keys are refused.

    A subclass with `shorthand` may be written as a plain value: `method: lora`
    means `method: {type: lora}`.
    """

    # Schemas are built when something is validated: most of these classes are never used alone.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    shorthand: ClassVar[str | None] = None
    renamed: ClassVar[Mapping[str, str]] = {}
    """Names of earlier releases, and the fields they are now; files and records have them."""
    removed: ClassVar[Mapping[str, RemovedField]] = {}
    """Fields of earlier releases. A record is read without them."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        set_descriptions(cls)

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        if cls.shorthand is not None and isinstance(value, str | int | float):
            return {cls.shorthand: value}
        if (cls.renamed or cls.removed) and isinstance(value, Mapping):
            kept = {key: item for key, item in value.items() if key not in cls.removed}
            return {cls.renamed.get(key, key): item for key, item in kept.items()}
        return value


class Config(Section):
    """The top level of a config file, with rules between its fields."""

    aliases: ClassVar[Mapping[str, Alias]] = {}
    """Names from elsewhere that are read as fields of this config."""

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> Self:
        wanted = info.context is None or info.context.get("rules", True)
        if wanted and (broken := self.broken_rules()):
            text = "\n".join(map(str, broken))
            raise PydanticCustomError("rules", "{text}", {"text": text})
        return self

    def broken_rules(self) -> list[Broken]:
        """Return the rules between fields that these values break."""
        return []

    def advice(self) -> list[Broken]:
        """Return warnings: values that work, but not as written."""
        return []


class RunConfig(Config):
    """The config of a run, of any kind."""

    name: str = Field(default="run", pattern=NAME_PATTERN)
    """Short name, the first part of each run id: lower-case letters, digits and dashes."""

    @property
    def worker_processes(self) -> int:
        """How many workers Ray starts; 0 if the run has none, or starts its own."""
        return 0

    @property
    def model_id(self) -> str | None:
        """The model that the run loads, which a client may convert in advance; None: unknown."""
        return None


class AnyTemplate(Config):
    """The template of a cluster, of any provider. That of a provider adds its own fields."""

    example: ClassVar[Mapping[str, Any]] = {}
    """Values of the fields without a default, for a new template."""

    name: str = Field(default="cluster", pattern=NAME_PATTERN)
    """Name of the cluster: lower-case letters, digits and dashes. Default: the file's name."""
    provider: str
    """Provider of the cluster."""

    def effect(self) -> list[str]:
        """Describe what `llmops up` starts, one line each."""
        return [f"Cluster {self.name} of provider {self.provider}."]


Size = Annotated[
    ByteSize,
    Field(ge=0),
    WithJsonSchema({"type": "integer", "minimum": 0, "format": "byte-size"}),
]
"""A number of bytes, or `8GiB`."""


class WarmSettings(Section):
    """Whether worker processes are forked from a process that has imported the training stack."""

    enabled: bool = True
    """Start a fork server on each node; `false`: each worker is a new Python process."""
    preload: tuple[Annotated[str, Field(pattern=MODULE_PATTERN)], ...] = ()
    """Modules to import in advance, besides the training stack. Do not name your own code."""
    keep: Size = ByteSize(8 * 2**30)
    """Disk space of each node, such as `8GiB` or in bytes, for loaded models, which later runs map
    into memory instead of reading them, and the most memory for tokenizers; `0`: none is kept."""

    @property
    def words(self) -> str:
        """`with a fork server`."""
        return "with a fork server" if self.enabled else "without a fork server"


class Price(Section):
    """The price of a node; runs show their cost so far with it."""

    shorthand = "node_hour"

    node_hour: float | None = Field(default=None, gt=0)
    """Price of one node for one hour; `null`: runs show no cost."""
    kwh: float | None = Field(default=None, gt=0)
    """Price of one kWh of electricity; runs show what the energy of their GPUs costs. It is not
    added to their cost: `node_hour` may contain it."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Currency of both prices: three capital letters."""

    @property
    def words(self) -> str:
        """`2.5 USD an hour, 0.3 USD a kWh`; empty without a price."""
        prices = {"an hour": self.node_hour, "a kWh": self.kwh}
        known = {unit: price for unit, price in prices.items() if price is not None}
        return ", ".join(f"{price:g} {self.currency} {unit}" for unit, price in known.items())


class NodePrice(Price):
    """The price of this node, as its processes find it in their environment."""

    only_node: bool = False
    """Whether the cluster can have no other node."""

    @classmethod
    def of(cls, price: Price, *, only_node: bool) -> Self:
        return cls(**price.model_dump(), only_node=only_node)

    def environment(self) -> dict[str, str]:
        """Return the variable that a node is started with; none without a price."""
        if self.node_hour is None and self.kwh is None:
            return {}
        return {NODE_PRICE_ENV_VAR: self.model_dump_json(exclude_none=True)}

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the price; None without one that can be read."""
        try:
            return cls.model_validate_json(environment.get(NODE_PRICE_ENV_VAR, ""))
        except ValidationError:
            return None


_CREDENTIALS = re.compile(r"://[^/\s@]+@")


def _page(url: str) -> str:
    if re.fullmatch(r"https?://[^\s?#@]+", url) is None:
        raise ValueError("must be an address such as http://grafana:3000, without a login")
    return url.rstrip("/")


Page = Annotated[str, AfterValidator(_page)]
_GRAFANA, _IN_BROWSER = "RAY_GRAFANA_HOST", "RAY_GRAFANA_IFRAME_HOST"
RUNS_DASHBOARD: Final = "llmops-runs"
"""The uid of the dashboard of runs that `llmops metrics grafana` prints."""


class MetricsPages(Section):
    """The team's Grafana and Prometheus, for the Metrics page of the Ray Dashboard."""

    grafana: Page | None = None
    """Address of Grafana as the head reaches it, such as `http://grafana:3000`; `null`: Ray tries
    port 3000 of the head. The page shows charts only if Prometheus answers too."""
    grafana_in_browser: Page | None = None
    """Address of Grafana as your browser reaches it; `null`: the same."""
    prometheus: Page | None = None
    """Address of Prometheus as the head reaches it; `null`: Ray tries port 9090 of the head."""
    runs_in_ray: bool = False
    """Show the dashboard of runs there, in the place of Ray's tab *Ray Data*, whose name Ray does
    not change. Grafana must have it (`llmops metrics grafana`), and allow to be embedded."""

    def environment(self) -> dict[str, str]:
        """Return the variables that Ray's dashboard reads."""
        values = {
            _GRAFANA: self.grafana,
            _IN_BROWSER: self.grafana_in_browser,
            "RAY_PROMETHEUS_HOST": self.prometheus,
            # Ray 2.60 embeds a whole dashboard in each of its two tabs; this is the uid of one.
            "RAY_GRAFANA_DATA_DASHBOARD_UID": RUNS_DASHBOARD if self.runs_in_ray else None,
        }
        return {name: value for name, value in values.items() if value}

    @staticmethod
    def runs_url(environment: Mapping[str, str], cluster: str) -> str | None:
        """Return where a browser finds the dashboard of a cluster's runs; None without Grafana."""
        grafana = environment.get(_IN_BROWSER) or environment.get(_GRAFANA) or ""
        if not grafana.startswith("http") or _CREDENTIALS.search(grafana):
            return None
        return f"{grafana.rstrip('/')}/d/{RUNS_DASHBOARD}?var-cluster={cluster}"


def _several(value: Any) -> Any:
    """`packages: trl==1.16` is a common way to write `[trl==1.16]`."""
    return (value,) if isinstance(value, str) else value


def _checked(packages: tuple[str, ...]) -> tuple[str, ...]:
    for one in packages:
        if one.startswith("-") or not one.strip():
            raise ValueError(
                f"{one!r} is no package; options of pip belong into a file that `requirements`"
                " names"
            )
        if _CREDENTIALS.search(one):
            raise ValueError(
                "a URL here has a user name or a password, and this file is kept in the run's"
                " record; set PIP_INDEX_URL or PIP_EXTRA_INDEX_URL in the cluster's environment"
            )
    return packages


Packages = Annotated[tuple[str, ...], BeforeValidator(_several), AfterValidator(_checked)]


class MonitorConfig(Section):
    """What is measured and watched while a run is under way."""

    every_s: float | None = Field(default=5.0, ge=1.0)
    """Seconds between two measurements of GPUs, hosts and worker processes in the first hour; later
    they are rarer, in a week about 4,400. `null`: nothing is measured."""
    stall_after: float | None = Field(default=3.0, ge=1.0)
    """When no step has ended for so many times the median step, plus 7 seconds, the run warns with
    the stacks of all workers and who waits for whom; evaluations and saves do not count. `null`:
    never."""
