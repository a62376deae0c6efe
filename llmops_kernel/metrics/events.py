"""The journal's event types: what a run reports, one JSON object per line.

A run has several writers (client, driver, rank 0 of each worker group), each with a stream of its
own. Inside a stream `seq` counts from 1 without gaps, so a reader can prove that nothing was lost
or seen twice; streams are merged by `time_s`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from llmops_kernel.metrics.flops import possible
from llmops_kernel.metrics.inputs import RunInputs
from llmops_kernel.metrics.planned import PlannedRun
from llmops_kernel.metrics.profile import CallTime, OperatorTime
from llmops_kernel.metrics.step_sums import StepSums
from llmops_kernel.metrics.system import HostSample, StackGroup, WorkerSample

PHASES = (
    "snapshot",
    "upload",
    "pending",
    "runtime_env",
    "supervisor",
    "driver",
    "batch_search",
    "workers",
    "imports",
    "compile",
    "process_group",
    "hub",
    "data",
    "model_load",
    "engine",
    "first_step",
)
"""Start-up phases in order; `first_step` ends with the first optimizer step.

snapshot, upload, pending: the client, until Ray has accepted the job. runtime_env: until the
job's supervisor process exists. supervisor: until the driver process exists. driver: its own
start. batch_search: for `micro_batch_size: auto`, unless its answer is kept, worker groups that try
sizes. workers: Ray Train's processes and their process group. imports, compile (DeepSpeed's
operations for CPUs, once per machine), process_group (DeepSpeed's and Accelerate's), hub (the
first answer for a model that is not on disk), data, model_load, engine (optimizer, sharding):
inside the worker loop.

A run may journal further phases by other names ("evaluate", "generate", "save")."""


class Event(BaseModel):
    # A diverged loss stays visible: pydantic would write null for NaN and infinity.
    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")

    stream: str = ""
    """`<attempt>-client`, `<attempt>-driver`, `<attempt>-worker-<n>` (n counts worker groups)."""
    seq: int = 0
    time_s: float = 0.0
    """Unix time of the writing."""
    attempt: int = 1


class PhaseEvent(Event):
    kind: Literal["phase"] = "phase"
    name: str
    state: Literal["begin", "end"]
    detail: str = ""
    """For people: "reused package 3f2a...", "134.5 M parameters"."""


class ProcessEvent(Event):
    """Reports whether a process of the run was forked from the node's fork server.

    The driver and rank 0 write it when they start. After its first step rank 0 writes it once more
    for all ranks, with their memory. For each process the event with more information counts.
    """

    kind: Literal["process"] = "process"
    role: Literal["driver", "worker"]
    rank: int | None = None
    """None for the driver."""
    warm: bool
    reason: str = ""
    """Reason for a cold start; empty when warm."""
    private_bytes: int | None = None
    """Unique set size after the first step: what this process shares with no other."""


class StartEvent(Event):
    """Rank 0 knows all there is to know before the first step."""

    kind: Literal["start"] = "start"
    total_steps: int
    """0 while unknown: a script need not say how many it will make."""
    first_step: int = 1
    """1, or one after the checkpoint's step on a resume."""
    num_workers: int
    global_batch_size: int
    """In sequences; 0 while unknown."""
    micro_batch_size: int = 0
    """Sequences in one pass of one worker of this group; 0 of a script and of earlier versions."""
    device: str
    """"NVIDIA H200" or the CPU's name."""
    dtype: str
    peak_flops: float | None = None
    """Dense peak of one worker's device at `dtype`, FLOP per second."""
    peak_source: str = ""
    """"datasheet: ..." or "measured: 1024x1024 matmul on this node"."""
    num_params: int = 0
    num_trainable: int = 0
    num_rows: int = 0
    """0 while unknown, as with streamed data whose lines were not counted yet; so `num_tokens`."""
    num_eval_rows: int = 0
    num_tokens: int = 0
    """Tokens of one epoch, padding apart."""
    num_skipped: int = 0
    """Rows left out before the first step because they could not be read or formatted."""
    node_ids: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    evaluate_every: int | None = None
    """Steps between two evaluations, 0 for none; None while unknown, as of a script. So the next
    two."""
    evaluates_at_end: bool | None = None
    save_every: int | None = None
    """Steps between two checkpoints. Also tells that an output is saved at the end."""
    engine: str = ""
    """Class of the wrapped model: `DeepSpeedEngine` or `DistributedDataParallel` ..."""
    performance: str = ""
    """The settings that were chosen for speed and why, on one line."""
    ceiling_flops: float | None = None
    """FLOP per second that a large matrix product reaches on one worker's GPU; None on a CPU, whose
    peak is such a measurement, and before the first step. So the next."""
    fixed_share: float | None = None
    """Time of a forward pass over one token, by that over a micro batch, 0..1."""
    verified: dict[str, str] = {}
    """The settings in force, which are those of the config: engine, attention, weights, optimizer
    states, trained, packing. Empty for a script."""
    planned: PlannedRun | None = None
    """None of a script, and of a model or setting that the planner does not know."""


class StepEvent(Event):
    kind: Literal["step"] = "step"
    step: int
    epoch: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    step_time_s: float | None = None
    """None where the begin of the step is unknown, as of the first step of a script."""
    data_wait_s: float | None = None
    compute_s: float | None = None
    passes_s: float | None = None
    """Rank 0 in forward and backward passes, without communication. This and the next four and
    `data_wait_s` make up the step; None where it is not measured, and then in another of them."""
    communication_s: float | None = None
    """Waiting for collectives, with what other workers come later: not hidden behind computing."""
    optimizer_s: float | None = None
    """Clipping of the gradients and the optimizer's step, where its states are on the device."""
    offload_s: float | None = None
    """Step of an optimizer whose states are in host memory."""
    between_s: float | None = None
    """Callbacks, the journal and counting of tokens."""
    tokens: int | None = None
    """All workers together, padding not counted."""
    tokens_per_second: float | None = None
    flops: float | None = None
    """Model FLOPs of the step, all workers together."""
    mfu: Annotated[float | None, AfterValidator(possible)] = None
    """0..1, of the workers' summed peak; None where an earlier version wrote more than 1."""
    mfu_palm: Annotated[float | None, AfterValidator(possible)] = None
    """MFU as other tools give it: all weights as if trained, attention over the full square."""
    hfu: Annotated[float | None, AfterValidator(possible)] = None
    """Utilization by all FLOPs that were computed: also padding, masked tokens, and what
    checkpointing and the attention kernel compute once more. None where the kernel is not known."""
    recomputed: Annotated[float | None, AfterValidator(possible)] = None
    """Part of `hfu` that is computed once more."""
    peak_memory_bytes: int | None = None
    """Device memory as the allocator reports; None on CPU."""
    host_memory_bytes: int | None = None
    """Resident set of rank 0's process."""
    profiled: bool | None = None
    """True: it was profiled, and slower for it. It counts in no figure of the run's speed."""
    values: dict[str, float] | None = None
    """Further numbers: what a script has reported with `track.log`, and of a mixture of experts how
    its tokens are spread (`metrics.expert_load`)."""
    stands_for: StepSums | None = None
    """Sums over itself and the steps that a view has left out beside it; not in journals."""


class ProgressEvent(Event):
    """Progress of a run without training steps, with the numbers that its kind shows; of a training
    how far an evaluation is.
    """

    kind: Literal["progress"] = "progress"
    done: int
    total: int | None = None
    unit: str = "rows"
    values: dict[str, float] = {}
    members: dict[str, dict[str, float]] = {}
    """Numbers by member that does a share of the work, such as `replica 0`."""


class EvalEvent(Event):
    kind: Literal["eval"] = "eval"
    step: int
    metrics: dict[str, float]
    """`eval_loss` and what the hook `compute_metrics` returned."""
    num_rows: int = 0
    """0 while unknown."""
    duration_s: float | None = None
    answers_s: float | None = None
    """Seconds of these in which answers were generated; None if there were none."""
    samples: tuple[dict[str, str], ...] = ()
    """Samples `{"row", "prompt", "prediction", "reference"}` and what else is known of them.

    `row` names the same row in each evaluation; a row of another report may lack it. Prompt and
    reference are missing where an earlier report of the stream has them: `store.journal` has
    the module `sample_texts` for them.
    """


class CheckpointEvent(Event):
    kind: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str
    size_bytes: int | None = None
    duration_s: float | None = None


class RowsEvent(Event):
    """Rows of streamed data that were left out since the event before.

    What a restarted run leaves out again after a checkpoint replaces what the attempt before had
    left out after it.
    """

    kind: Literal["rows"] = "rows"
    step: int
    """Up to and with this step."""
    num_skipped: int = 0
    """Rows that could not be read or formatted."""


class WarningEvent(Event):
    kind: Literal["warning"] = "warning"
    message: str
    remedy: str = ""


class FailureEvent(Event):
    """A failure; ranks with the same text are grouped."""

    kind: Literal["failure"] = "failure"
    error: str
    """Exception class name."""
    message: str
    remedy: str = ""
    ranks: tuple[int, ...] = ()
    traceback: str = ""
    file: str = ""
    """File of the user's workspace, relative; empty when the failure is not in user code."""
    line: int | None = None
    out_of_memory: bool = False
    step: int | None = None
    """Step in which it happened, counted from 1; 0: before the first one; None: not known."""
    phase: str = ""
    """Phase in which it happened, such as `evaluate`; empty between phases, as in a step."""


class RestartEvent(Event):
    """Ray Train starts a new worker group after a failure."""

    kind: Literal["restart"] = "restart"
    from_step: int
    """Step of the checkpoint it resumes from; 0 is the beginning."""
    cause: str
    failures_left: int | None = None
    changes: dict[str, Any] = Field(default_factory=dict)
    """Settings that the new group has in place of the config's, by the paths of their fields: after
    running out of memory."""


class QueueEvent(Event):
    """The driver's workers have no resources yet, or (`end`) have them or are not wanted any more.

    A `begin` replaces the one before: what is waited for changes while other runs end.
    """

    kind: Literal["queue"] = "queue"
    state: Literal["begin", "end"]
    reason: str = ""
    """"needs 2 CPUs; 2 of 2 CPUs are used by run lora-2a4c"."""
    place: int | None = None
    """1 for the run whose turn it is; None where there is no order."""
    length: int | None = None
    """Runs that wait for some of the same resources, this one included."""


class OutputFile(BaseModel):
    """A file of an output that clients can copy."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    """Path below the output's folder, with `/`."""
    size_bytes: int
    sha256: str


class OutputEvent(Event):
    kind: Literal["output"] = "output"
    path: str
    what: str
    """`adapter`, `model`, `merged_model`."""
    size_bytes: int | None = None
    place: Literal["", "node"] = ""
    """`node`: only on a node of the cluster, and lost with it. Empty: elsewhere, or not known."""
    files: tuple[OutputFile, ...] = ()
    """Its files, if they are small enough that clients copy them."""
    base: str = ""
    """Name, folder or hub id of the model that an adapter is of, where the config's model is
    another adapter; empty: the config's."""
    base_revision: str | None = None
    compared: str = ""
    """Result of the comparison with the model that was trained, or why there was none."""
    copied_from: str = ""
    """Path at which the run wrote it, if a client has copied it from there to `path`."""


class ProfileEvent(Event):
    """Some steps were profiled: their operators, and where the timeline is."""

    kind: Literal["profile"] = "profile"
    first_step: int
    last_step: int
    path: str
    """Folder with `rank-<n>.json.gz`, for Perfetto, and on GPUs a snapshot of the memory."""
    operators: tuple[OperatorTime, ...] = ()
    calls: tuple[CallTime, ...] = ()
    """The tree of calls, for a flame graph: each caller is before what it calls."""
    groups: tuple[StackGroup, ...] = ()
    """Where all ranks stood at one moment of these steps."""
    time_in_steps_s: float | None = None
    """What the steps took while they were profiled."""
    writing_s: float | None = None
    """What the run has waited for the files."""
    place: Literal["", "node"] = ""
    files: tuple[OutputFile, ...] = ()
    """Both as those of an output."""


class HoldEvent(Event):
    """The run uses a node from now on, or no longer; the end of its attempt ends all holds.

    It holds a node that one of its processes is on: the driver, a worker, a replica, a scorer.
    """

    kind: Literal["hold"] = "hold"
    node: str
    """Ray's id of the node, or its host name."""
    state: Literal["begin", "end"]
    node_hour: float | None = None
    """Price of the node for an hour; None: not known."""
    kwh: float | None = None
    """Price of a kWh there; None: not known."""
    currency: str = ""


class SystemEvent(Event):
    """The GPUs, hosts and worker processes of the run, as its driver measured them just now."""

    kind: Literal["system"] = "system"
    workers: tuple[WorkerSample, ...] = ()
    hosts: tuple[HostSample, ...] = ()
    energy_j: float | None = None
    """Of the workers' GPUs since the first sample of the attempt; None where no GPU has said."""


class StallEvent(Event):
    """No step has ended for a long time, with where each worker stands; `end`: one has again."""

    kind: Literal["stall"] = "stall"
    state: Literal["begin", "end"]
    step: int
    """The last one that has ended."""
    waited_s: float = 0.0
    """Seconds since then, or since a known phase after it."""
    usual_s: float | None = None
    """Median time of a step."""
    message: str = ""
    """Who waits for whom."""
    groups: tuple[StackGroup, ...] = ()
    file: str = ""
    """Text file with all stacks, on the driver's node or a shared disk."""


class AnswerEvent(Event):
    """A piece of a model's growing answer in a chat."""

    kind: Literal["answer"] = "answer"
    model: str
    """`base`, `tuned`."""
    start: int = 0
    """Characters of the answer that stay; `text` comes behind them."""
    text: str = ""
    output_tokens: int = 0
    """Tokens of the answer so far."""
    prompt_tokens: int | None = None
    is_final: bool = False
    finish: Literal["", "stop", "length", "error", "cancelled"] = ""
    """Reason for the end of the answer; empty until it has ended."""
    error: str = ""
    """Reason why there is no answer."""
    remedy: str = ""
    tokens_per_second: float | None = None
    """From the first token to the last; None for fewer than two."""


class TrackerEvent(Event):
    """The run has a run in a tracker of `report_to`."""

    kind: Literal["tracker"] = "tracker"
    name: str
    url: str = ""
    """Its page, of http or https; empty where the tracker has no pages."""
    path: str = ""
    """Folder, database or server that has it, where there is no page."""


class InputsEvent(Event):
    kind: Literal["inputs"] = "inputs"
    inputs: RunInputs


RunState = Literal[
    "PENDING", "QUEUED", "RUNNING", "RESTARTING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED"
]
"""PENDING: the driver has not reported yet. QUEUED: Ray has no free resources for the workers.
RESTARTING: a worker was lost, and the next worker group has not reported yet."""
TERMINAL: frozenset[str] = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


class EndEvent(Event):
    kind: Literal["end"] = "end"
    state: Literal["SUCCEEDED", "FAILED", "STOPPED"]
    message: str = ""
    remedy: str = ""
    last_step: int | None = None
    is_lost: bool = False
    """The cluster ended, and the run with it."""


AnyEvent = Annotated[
    PhaseEvent
    | ProcessEvent
    | StartEvent
    | StepEvent
    | ProgressEvent
    | EvalEvent
    | CheckpointEvent
    | RowsEvent
    | WarningEvent
    | FailureEvent
    | RestartEvent
    | QueueEvent
    | OutputEvent
    | ProfileEvent
    | HoldEvent
    | SystemEvent
    | StallEvent
    | AnswerEvent
    | TrackerEvent
    | InputsEvent
    | EndEvent,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
_BATCH: TypeAdapter[list[AnyEvent]] = TypeAdapter(list[AnyEvent])


def parse_event(line: str | bytes) -> AnyEvent:
    """Read one journal line. Raises `pydantic.ValidationError`."""
    return _ADAPTER.validate_json(line)


def parse_events(lines: bytes) -> list[AnyEvent]:
    """Read whole journal lines at once, twice as fast as one by one.

    Raises `pydantic.ValidationError` when a single one of them cannot be read.
    """
    return _BATCH.validate_json(b"[" + lines.strip().replace(b"\n", b",") + b"]")
