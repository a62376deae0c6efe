"""The definition of a kind of run: config, entrypoint, view, figures, columns, phases and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import Any, Literal

from llmops_kernel.metrics.cost import JOULES_PER_KWH
from llmops_kernel.store.journal.summary import Better, Unit
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord

Action = Literal["stop", "retry", "resubmit", "compare", "delete", "chat"]
ALL_ACTIONS: frozenset[Action] = frozenset({"stop", "retry", "resubmit", "compare", "delete"})
"""The actions of most kinds; `chat` is for kinds whose runs may write a model."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number of a run that users compare; every screen renders the list of its kind."""

    key: str
    label: str
    unit: Unit
    value: Callable[[Any], float | None]
    """Reads it from the kind's view, in base units; None is unknown."""
    better: Better = None
    hint: str | Callable[[Any], str] = ""
    """The text of a tooltip; may depend on the view."""
    note: Callable[[Any], str] | None = None
    """Text shown behind the value, such as "since step 3"."""
    listed: bool = False
    """True if lists of runs have a column for it."""
    live: bool = True
    """True if the live panel shows it."""
    compared: bool = True
    """True if a comparison and the table at the end show it."""

    @classmethod
    def rate(
        cls,
        key: str,
        label: str,
        hint: str | Callable[[Any], str],
        value: Callable[[Any], float | None],
        **more: Any,
    ) -> Figure:
        """A number a second, of which more is better."""
        return cls(
            key=key, label=label, unit="per_second", better="higher", hint=hint, value=value, **more
        )

    def hint_for(self, view: RunView) -> str:
        return self.hint if isinstance(self.hint, str) else self.hint(view)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A number of each row of the charts; the first column of a kind is the x axis."""

    name: str
    label: str
    unit: Unit
    value: Callable[[Any], float | None]
    """Reads it from an event of `view.rows`."""
    is_logged: bool = False
    """True for a number that the run logged under the column's name."""

    @classmethod
    def of_field(cls, name: str, label: str, unit: Unit, *, field: str = "") -> Column:
        """A column that shows a field of the event, by default the one of its own name."""
        return cls(name=name, label=label, unit=unit, value=attrgetter(field or name))


@dataclass(frozen=True, kw_only=True)
class Program:
    """A file of the user's that is submitted without a config file, such as a Python script."""

    config: str
    """`module:attribute` of a function (path, workspace) -> the values of a config that runs it."""
    arguments: str
    """The config's field with the program's own arguments."""


def _no_figures(_: Any) -> tuple[Figure, ...]:
    return ()


def _no_columns(_: Any) -> tuple[Column, ...]:
    return ()


def _no_description(_: RunRecord) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class RunKind:
    """An entry of the registry: all that lists, panels, comparison and submit need of a kind."""

    name: str
    """The name in the run record: `train`, `script`."""
    title: str
    """The readable name: `Training run`."""
    entrypoint: str = ""
    """Command of the driver, for a shell, which Ray starts. With `exec` before a single command
    Ray's own process is the driver; else one that outlives its shell would go on unseen."""
    config_file: str = ""
    """Its config files: `module:attribute` of a `config.assist.file_kinds.Kind` of the same name,
    loaded when a config is read."""
    complete: str = ""
    """`module:attribute` of a function (config, store) -> config that fills in at submission what
    depends on the store, such as the model of an earlier run; it may raise LLMOpsError."""
    prepare: str = ""
    """`module:attribute` of a function (config, provider, progress=...) that makes at submission
    what its runs need on this machine; it may take minutes, and raise LLMOpsError."""
    programs: Mapping[str, Program] = field(default_factory=dict)
    """Programs that may be submitted instead of a config file, by extension."""
    view: type[RunView] = RunView
    figures: tuple[Figure, ...] = ()
    """The figures in order of importance."""
    more_figures: Callable[[Any], tuple[Figure, ...]] = _no_figures
    """Figures that depend on the run, such as one for each evaluation metric."""
    columns: tuple[Column, ...] = ()
    more_columns: Callable[[Any], tuple[Column, ...]] = _no_columns
    """Columns that the run itself names; the same name gives an equal column."""
    curve: str = ""
    """Name of the column that lists draw as a small curve."""
    phases: tuple[str, ...] = ()
    """Start-up phases in order; the last one ends with the first result."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Phase -> a label, such as "Loading the model"."""
    saves: str = "a checkpoint"
    """A stopped run saves this first, and a retry continues from it."""
    speeds: tuple[str, ...] = ("mfu", "tokens_per_second")
    """Names of columns that measure speed; pictures draw the first that a run has."""
    no_progress: str = "This run reported no progress."
    """Shown in place of the charts when a run has ended without a row."""
    output_comparison: str = ""
    """`module:attribute` of a function (store, before, after) -> `OutputComparison` of
    `services/scoring`: compares the outputs of two runs row by row. Empty: they have no rows."""
    is_profiled: bool = False
    """True if its next steps can be profiled while it runs."""
    instead_of_profile: str = "profile its program with a tool of its own"
    """What to do for runs that cannot be profiled."""
    actions: frozenset[Action] = ALL_ACTIONS
    describe: Callable[[RunRecord], str] = _no_description
    """Returns a line about the run, such as "SmolLM2-135M-Instruct · lora · ddp × 2"."""

    def all_figures(self, view: RunView) -> tuple[Figure, ...]:
        return self.figures + self.more_figures(view)

    def all_columns(self, view: RunView) -> tuple[Column, ...]:
        return self.columns + self.more_columns(view)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


def load_attribute(path: str) -> Any:
    """Import `module:attribute`."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)


# --- The figure of money, which training, script and score runs have in common ---


_COUNTED = (
    "nodes used x price of a node for an hour, all attempts, up to the newest event of the run;"
    " a node that two runs share counts whole for each"
)
_UNKNOWN = "not known: the cluster's template had no `price` for each node when they were started"


def cost_figure(view: RunView) -> Figure:
    """Return the cost of the run so far; each currency has a figure of its own."""
    cost = view.cost
    known = cost.money is not None
    return Figure(
        key=f"cost_{cost.currency.lower()}" if known else "cost",
        label="cost so far",
        unit="money",
        better="lower",
        hint=_COUNTED if known else _UNKNOWN,
        value=lambda view: view.cost.money,
        note=lambda view: view.cost.currency,
    )


# --- The figure of energy ---


_ENERGY_PRICE = (
    "kWh x the template's price of a kWh; not added to the cost so far, which contains it only if"
    " the price of a node does"
)
_NO_ENERGY_PRICE = (
    "not known: the cluster's template had no `price: {kwh: ...}`, the same one for each node, when"
    " they were started"
)


def energy_figures(view: RunView) -> tuple[Figure, ...]:
    """Return the energy of a run's GPUs and its money; none where nothing has measured it."""
    if view.energy_j is None:
        return ()
    energy = Figure(
        key="energy_kwh",
        label="GPU energy",
        unit="number",
        better="lower",
        hint="of the workers' GPUs, by NVML, from the first sample of each attempt to the newest;"
        " processors, memory and network are not measured, and a GPU that two runs share counts"
        " whole for each",
        value=lambda view: None if view.energy_j is None else view.energy_j / JOULES_PER_KWH,
        note=lambda _: "kWh",
    )
    cost = view.energy_cost
    known = cost.money is not None
    money = Figure(
        key=f"energy_cost_{cost.currency.lower()}" if known else "energy_cost",
        label="cost of GPU energy",
        unit="money",
        better="lower",
        hint=_ENERGY_PRICE if known else _NO_ENERGY_PRICE,
        value=lambda view: view.energy_cost.money,
        note=lambda view: view.energy_cost.currency,
    )
    return (energy, money)


# --- What every run shows, of any kind ---


START_PHASES = ("snapshot", "upload", "pending", "runtime_env", "supervisor", "packages", "driver")
START_WORDS = {
    "snapshot": "Packing the workspace",
    "upload": "Uploading code that the cluster does not have yet",
    "pending": "Waiting for Ray to start the job",
    "runtime_env": "Preparing the runtime environment",
    "supervisor": "Starting the job's supervisor",
    "packages": "Installing the run's packages",
    "driver": "Starting the driver",
    "queue": "Waiting for resources",
}
"""Phases from submit to the start of the driver, which all kinds share."""


def generic_kind(name: str) -> RunKind:
    """A kind that this version does not know; its runs can be read, stopped and deleted."""
    return RunKind(
        name=name,
        title=f"{name} run",
        columns=(Column.of_field("done", "done", "count"),),
        phases=START_PHASES,
        words=START_WORDS,
        actions=frozenset({"stop", "delete"}),
    )
