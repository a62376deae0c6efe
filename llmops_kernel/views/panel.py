"""The state of a run's live panel, as browsers get it: words and formatted numbers.

`snapshot` makes it; `extension/src/wire.ts` has its fields.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from llmops_kernel.metrics.events import RunState
from llmops_kernel.metrics.profile import CallTime
from llmops_kernel.store.journal.summary import Unit


class PanelPart(BaseModel):
    """A part of the panel; an unknown field is a mistake of the snapshot."""

    # Built on first use: most commands import this module and show no panel.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class RunColumn(PanelPart):
    """A number that each row of a run's charts has."""

    name: str
    label: str
    unit: Unit


class SampledAnswer(PanelPart):
    """An answer of the model at one step."""

    at: str
    """The step."""
    words: list[tuple[str, bool]]
    """Pieces of the text, each with whether the answer before it lacks it."""
    more: str
    """Says what is left out; empty for a whole answer."""


class ComparedSample(PanelPart):
    """A row that several runs answered."""

    row: str
    prompt: str
    reference: str
    """Empty for a prompt without one."""
    answers: list[SampledAnswer | None]
    """The newest of each run or null; words are new that the first run's answer lacks."""


class PanelFigure(PanelPart):
    """A number at the top."""

    label: str
    value: str
    """A dash when unknown."""
    hint: str


class PanelBar(PanelPart):
    """A start-up phase, a loss of FLOPs or a part of memory."""

    name: str
    detail: str
    left: float
    """Where it begins, as a fraction of the whole width."""
    width: float
    text: str
    """How long it took, or how much it is."""
    running: bool
    interrupted: bool


class PanelWaterfall(PanelPart):
    """From submit to the first result."""

    rows: list[PanelBar]
    later: list[str]
    """Phases after the first result, with their total times."""
    total: str
    first: str
    """The first result: `first step`, `first rows`."""


class PanelLosses(PanelPart):
    """Where the FLOPs of a training go, from the peak down to the MFU."""

    rows: list[PanelBar]
    note: str
    """Which steps were measured, and what was not."""
    verdict: str
    """What bounds the run and the setting to change, in one line; empty while unknown."""
    change: str
    """The call that tries it, to be copied; empty without a change."""
    overrides: list[str]
    """The change as overrides, for whoever can submit the run again."""


class PanelTable(PanelPart):
    """A table of texts."""

    columns: list[str]
    rows: list[list[str]]


class PanelSampledRow(PanelPart):
    """A row that was answered more than once, oldest answer first."""

    row: str
    answers: list[SampledAnswer]


class PanelSamples(PanelTable):
    """Rows with the model's answers: prompt, answer, reference."""

    at: str
    """`after 1,200 rows`, `at step 40`; empty before there are samples."""
    history: list[PanelSampledRow]
    first: int
    """Place of the first row among all samples of that evaluation."""
    total: int


class PanelWarning(PanelPart):
    """A warning of the run."""

    message: str
    remedy: str
    times: int


class PanelFailure(PanelPart):
    """An exception of the user's code or of a worker."""

    error: str
    message: str
    remedy: str
    ranks: str
    where: str
    """`train.py:12`; empty when unknown."""
    traceback: str


class PanelOutput(PanelPart):
    """A file or folder that the run wrote."""

    what: str
    path: str
    size: str


class PanelTracker(PanelPart):
    """A run of this run in a tracker."""

    name: str
    url: str
    """Its page, of http or https; empty where it has none."""
    path: str
    """Where it is instead."""


class PanelCurve(PanelPart):
    """A metric of the evaluations as a curve."""

    name: str
    label: str
    points: list[tuple[float, float]]
    """Step and value."""


class PanelLine(PanelPart):
    """A line of a chart of measurements."""

    label: str
    """Rank or host."""
    values: list[float | None]
    """One for each of `PanelSystem.x`."""


class PanelSystemChart(PanelPart):
    """A measurement of each worker or host, with a unit that is drawn behind its numbers."""

    key: str
    title: str
    unit: str
    lines: list[PanelLine]


class PanelSystem(PanelPart):
    """What hosts, GPUs and worker processes do; without charts before the first sample."""

    x_label: str
    x: list[float]
    charts: list[PanelSystemChart]
    workers: PanelTable
    hosts: PanelTable
    note: str


class PanelStall(PanelPart):
    """Where the workers stand while no step ends."""

    message: str
    groups: PanelTable
    stacks: str


class PanelProfile(PanelPart):
    """Steps that were profiled."""

    number: int
    """Its place among all profiles of the run."""
    title: str
    """`steps 12 to 14`."""
    first: int
    last: int
    note: str
    """How much slower these steps were."""
    path: str
    """Folder of the timelines for Perfetto."""


class PanelProfiles(PanelPart):
    """The profiles of a run, and whether its next steps can be profiled."""

    can: bool
    now: str
    """What is profiled now, or waits to be, as a sentence; empty for nothing."""
    done: list[PanelProfile]
    operators: PanelTable
    """Of the newest."""


class ProfileDetail(PanelPart):
    """One profile: what is too much to send with each change of a run."""

    number: int
    operators: PanelTable
    calls: list[CallTime]
    """The tree of calls, callers first."""
    groups: PanelTable
    """Where ranks stood; empty where nobody looked."""
    stacks: str


class PanelState(PanelPart):
    """Everything that the panel shows but the rows of the charts and the log."""

    run_id: str
    name: str
    title: str
    """The run's name for people: its title, else its config's name."""
    cluster: str
    what: str
    state: RunState
    state_text: str
    """Says what it waits for or why it restarts; empty where the state says all."""
    attempt: int
    ended: bool
    kind: str
    no_steps: bool
    """It has ended without any row for the charts."""
    message: str
    remedy: str
    progress: float | None
    """In 0..1."""
    progress_text: str
    eta_text: str
    waiting_text: str
    """Says what it does while there is no curve yet."""
    figures: list[PanelFigure]
    columns: list[RunColumn]
    curve: str
    """Name of the column that is the main curve; empty without one."""
    waterfall: PanelWaterfall
    losses: PanelLosses
    memory: list[PanelBar]
    """Planned parts of a device's memory and the measured peak; empty where one is not known."""
    processes: str
    evals: list[tuple[float, float]] | None
    """Step and evaluation loss; null for a kind without evaluations."""
    eval_curves: list[PanelCurve]
    """The further metrics of the evaluations, without values that are not finite."""
    eval_rows: PanelTable
    """A row for each evaluation."""
    samples: PanelSamples
    members: PanelTable
    """Numbers of each member that does a share of the work, such as a replica."""
    saves: str
    """Saved when it is stopped: `a checkpoint`."""
    warnings: list[PanelWarning]
    restarts: list[str]
    restart_steps: list[int]
    """The step that each restart resumed from; 0 is the beginning."""
    nan_since: int | None
    """First step of those whose loss is not a number, up to the last one."""
    every_row: bool
    """False where rows were left out, as of a run of very many steps, or in a saved notebook."""
    stride: int
    """Two rows, the lowest and the highest numbers, stand for at most so many steps."""
    failures: list[PanelFailure]
    outputs: list[PanelOutput]
    trackers: list[PanelTracker]
    profiles: PanelProfiles
    system: PanelSystem
    stall: PanelStall | None
