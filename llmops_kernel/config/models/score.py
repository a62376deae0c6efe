"""The score config (`*.score.yaml`), and the config of one turn of a chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from llmops_kernel.config.models.section import (
    NAME_PATTERN,
    Broken,
    MonitorConfig,
    Packages,
    RunConfig,
    Section,
)
from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.config.models.tracking import ReportTo, TrackingConfig, tracker_rules


class Message(Section):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    """Who says it."""
    content: str
    """Template of the text, as `{name}: {description}`."""


class ScoreInput(Section):
    """The table whose rows are scored."""

    shorthand: ClassVar[str | None] = "path"

    path: str
    """Parquet, Arrow, JSONL, JSON, CSV or text: a file, a folder, a pattern, a URL
    (`s3://`, `gs://`, `az://`, `hdfs://`), or a hub id of a dataset."""
    format: Literal["auto", "parquet", "arrow", "jsonl", "json", "csv", "text"] = "auto"
    """`auto`: by the files' names. `json`: one list of objects; `text`: a row in
    each line, with the column `text`; `csv`: with a header, all values are texts."""
    key: str = ""
    """Column that identifies a row; default: the number of the row, from 0."""
    limit: int | None = Field(default=None, ge=1)
    """Score the first rows only."""
    columns: tuple[str, ...] = ()
    """Columns of the input to keep in the output; default all."""


class PromptSettings(Section):
    """How a row becomes a prompt. One of `template`, `messages`, `column`, or a hook."""

    shorthand: ClassVar[str | None] = "template"

    template: str = ""
    """Text with names of columns, as `{name}: {description}`."""
    messages: tuple[Message, ...] = ()
    """A chat, each message a template; the model's chat template is applied."""
    column: str = ""
    """Column with the prompt: a text, or a list of messages."""
    chat: bool | None = None
    """Pass a text as a user's message through the model's chat template; default: true for models
    that write text, and false for embedding models, classifiers and models of a number."""
    reference: str = ""
    """Column or template of the expected answer, for evaluation."""


class ScoreOutput(Section):
    """Where the scored rows go."""

    url: str = ""
    """Folder or URL, of one run: another run is refused. Default: the run's folder."""
    part_rows: int = Field(default=1000, ge=1)
    """Rows of one output file; also the unit that is done again after a failure."""


# --- The model of a score config, and the engine that it runs in ---


class ScoredModel(Section):
    """The model whose answers are scored."""

    shorthand: ClassVar[str | None] = "id"

    id: str = ""
    """Base model or full fine-tune: a name of the catalogue, a folder, or a hub id. With `run` it
    is filled in at submission."""
    run: str = ""
    """A training run whose output is scored: its id, or `last`, the newest with an output."""
    adapter: str = ""
    """Folder or URL of a LoRA adapter of the model. With `run` it is filled in at submission."""
    revision: str | None = None
    """Revision of a hub id."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Number format of the weights. `auto` is `bfloat16` on GPUs and CPUs with instructions for it,
    else `float32`, which is several times faster there; the run says which at its start."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""


class EngineSettings(Section):
    """What generates the answers, and how many of them at once."""

    shorthand: ClassVar[str | None] = "type"

    type: str = "auto"
    """`vllm`, `transformers`, or `auto`: vLLM where it is installed, else Transformers."""
    replicas: int = Field(default=1, ge=1)
    """Copies of the model that work at the same time."""
    max_replicas: int | None = Field(default=None, ge=1)
    """Start up to this many copies while the cluster has free resources; default `replicas`."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that one copy of the model is spread over; they must be in one node."""
    max_model_len: int | None = Field(default=None, ge=8)
    """Longest prompt with its answer, in tokens; default: what the model was made for, at most
    4,096."""
    batch_size: int = Field(default=64, ge=1)
    """Sequences that one copy works on at once."""
    keep_s: float = Field(default=600.0, ge=0)
    """Seconds that a loaded engine waits for the next job before it leaves the cluster."""
    gpu_memory: float = Field(default=0.9, gt=0, le=1)
    """Share of each GPU's memory that vLLM may take, 0..1."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the engine, as vLLM's `EngineArgs` names them."""


# --- What the model is asked to do with each row ---


TaskType = Literal["generate", "classify", "json", "logprob", "embed", "value"]
Side = Literal["query", "document", "none"]


class Task(Section):
    """What the model is asked to do with each row."""

    shorthand: ClassVar[str | None] = "type"

    type: TaskType = "generate"
    """`generate` text; `classify`: one of `choices`, or of the labels that a classifier was trained
    for; `json`: an object of `json_schema`; `logprob`: how probable the reference is as the answer,
    or the prompt itself where no reference is named; `embed`: a vector; `value`: the number of a
    model that was trained to give one (objectives `regress` and `reward`)."""
    choices: tuple[str, ...] = ()
    """The answers of `classify`, for a model that writes text."""
    side: Side | None = None
    """Which prefix of an embedding model `embed` puts before the text; `none`: nothing. Default:
    `document`, and `query` where `prompt.reference` is named. Models without prefixes get none."""
    json_schema: dict[str, Any] | None = None
    """JSON schema of the answers of `json`."""
    top_k: int | None = Field(default=None, ge=1)
    """For `logprob`: also write this many most probable tokens at each token of the reference, for
    `objective: distill`. The reference is then the whole answer as a training learns it: as the
    chat template writes it, with the token that ends it."""


class Sampling(Section):
    """How the next token is chosen."""

    temperature: float = Field(default=0.0, ge=0)
    """0: always the most probable token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Choose among the most probable tokens that have this probability together."""
    top_k: int | None = Field(default=None, ge=1)
    """Choose among this many most probable tokens."""
    max_tokens: int = Field(default=256, ge=1)
    """Longest answer, in tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""
    seed: int = 0
    """Seed of the random choice; each row has its own, made from it and the row's number."""


# --- Which metrics are computed of the answers ---


MetricName = Literal[
    "exact_match", "field_f1", "rouge", "bleu", "perplexity", "calibration", "grounded",
    "f1", "mse", "pearson", "spearman", "retrieval",
]  # fmt: skip


class Grounded(Section):
    """Whether an answer is supported by the context, or refuses."""

    context: str = "context"
    """Column with the text that must support the answer."""
    answerable: str = ""
    """Column that says whether the context has the answer; default: unknown."""
    refusals: tuple[str, ...] = (
        "i don't know",
        "i do not know",
        "cannot answer",
        "can't answer",
        "not enough information",
        "not in the context",
        "unanswerable",
    )
    """Phrases of a refusal, in any case."""
    support: float = Field(default=0.8, gt=0, le=1)
    """Share of the answer's words that must be in the context, 0..1."""


class Judge(Section):
    """A second model that grades the answers."""

    model: str = ""
    """A name of the catalogue, a folder or a hub id; without one there is no judge."""
    rubric: str = ""
    """What is asked about an answer, with `{prompt}`, `{output}`, `{reference}` and columns."""
    choices: tuple[str, ...] = ("good", "bad")
    """The grades, from best to worst."""


class ScoreEvaluation(Section):
    """Which metrics are computed of the answers, and how many are shown."""

    metrics: tuple[MetricName, ...] = ()
    """Metrics against the reference; the hook `score_row` adds its own. `f1`: of the task classify,
    the mean over all labels; `mse`, `pearson`, `spearman`: of the task value; `retrieval`: of the
    task embed, whether each prompt is nearest to its own reference among all of the table."""
    dimensions: tuple[int, ...] = ()
    """For `retrieval`: also of the vectors cut to these lengths, such as `[64, 128]`."""
    grounded: Grounded = Grounded()
    """Settings of the metric `grounded`."""
    judge: Judge = Judge()
    """A second model that grades the answers."""
    samples: int = Field(default=5, ge=0, le=100)
    """Rows that are shown with their answers while the run goes on."""


_NUMBERS = ("mse", "pearson", "spearman")
_NEEDS_REFERENCE = (
    "exact_match", "field_f1", "rouge", "bleu", "perplexity", "f1", *_NUMBERS, "retrieval"
)  # fmt: skip
_OF_TASK = {
    "perplexity": (
        "logprob",
        "perplexity is of tokens that are given, which only the task logprob rates",
    ),
    "calibration": (
        "classify",
        "calibration compares a choice's probability with how often it is correct",
    ),
    "f1": ("classify", "f1 is of labels"),
    "retrieval": ("embed", "retrieval compares vectors"),
    **{name: ("value", f"{name} compares numbers") for name in _NUMBERS},
}
"""Metrics of one task only, and why."""


class ScoreHooks(Section):
    """Functions of the user's own."""

    shorthand = "file"

    file: str | None = None
    """Python file, relative to the workspace. Of its functions are used: `format_prompt(row)`, else
    `format_example(row)`; `score_row(prediction, reference, row)`; and
    `compute_metrics(predictions, references, rows)`."""


class ScoreConfig(RunConfig):
    """Scores a table: a prompt of each row, the model's answer, and metrics."""

    name: str = Field(default="score", pattern=NAME_PATTERN)
    """Short name, the first part of each run id: lower-case letters, digits and dashes."""
    model: ScoredModel
    """The model whose answers are scored."""
    input: ScoreInput
    """The table whose rows are scored."""
    prompt: PromptSettings = PromptSettings()
    """How a row becomes a prompt."""
    task: Task = Task()
    """What the model is asked to do with each row."""
    sampling: Sampling = Sampling()
    """How the next token is chosen."""
    engine: EngineSettings = EngineSettings()
    """What generates the answers."""
    evaluation: ScoreEvaluation = ScoreEvaluation()
    """Which metrics are computed of the answers."""
    hooks: ScoreHooks = ScoreHooks()
    """Functions of the user's own."""
    output: ScoreOutput = ScoreOutput()
    """Where the scored rows go."""
    packages: Packages = ()
    """Packages that this run needs besides those of the cluster, as pip takes them: `trl==1.16`.
    Each node installs them once."""
    requirements: str | None = None
    """A requirements file with such packages, relative to the workspace."""
    report_to: ReportTo = ()
    """Trackers that get the run's numbers: `comet_ml`, `mlflow`, `tensorboard`, `trackio`,
    `wandb`; several at once."""
    tracking: TrackingConfig = TrackingConfig()
    """How the run appears in these trackers."""
    monitor: MonitorConfig = MonitorConfig()
    """What is measured and watched while the run is under way."""

    def broken_rules(self) -> list[Broken]:
        rules = (_model, _prompt, _task, _evaluation, _judge)
        broken = [broken for rule in rules for broken in rule(self)]
        return [*broken, *tracker_rules(self.report_to)]

    @property
    def model_id(self) -> str | None:
        return self.model.id or None


def _model(config: ScoreConfig) -> Iterator[Broken]:
    if not config.model.id and not config.model.run:
        yield Broken(
            path="model.id",
            message="no model is named",
            suggestion="name a model, or a training run in model.run (`last` is the newest)",
        )
    most = config.engine.max_replicas
    if most is not None and most < config.engine.replicas:
        yield Broken(
            path="engine.max_replicas",
            message=f"{most} is less than the {config.engine.replicas} of engine.replicas",
            suggestion="leave it out, or make it larger",
            uses=("engine.replicas",),
        )


def _prompt(config: ScoreConfig) -> Iterator[Broken]:
    prompt = config.prompt
    ways = [name for name in ("template", "messages", "column") if getattr(prompt, name)]
    if len(ways) > 1:
        yield Broken(
            path="prompt",
            message=f"{' and '.join(ways)} both say what the prompt is",
            suggestion="keep one of them",
        )
    if not ways and config.hooks.file is None:
        yield Broken(
            path="prompt",
            message="nothing says how a row becomes a prompt",
            suggestion='write a template such as `prompt: "{name}: {description}"`, or name a'
            " file with the function format_prompt in hooks.file",
            uses=("hooks",),
        )


def _task(config: ScoreConfig) -> Iterator[Broken]:
    task, model = config.task, config.model
    writes_text = model.id in CATALOGUE and not (model.run or model.adapter)
    if task.type == "classify" and (task.choices or writes_text) and len(set(task.choices)) < 2:
        yield Broken(
            path="task.choices",
            message="classify chooses between at least two different answers",
            suggestion="list them, as `choices: [vegan, vegetarian, none]`",
        )
    if task.type == "json" and task.json_schema is None:
        yield Broken(
            path="task.json_schema",
            message="json needs the schema of the answers",
            suggestion="write it as `json_schema: {type: object, properties: {...}}`",
        )
    if task.top_k is not None and not config.prompt.reference and config.hooks.file is None:
        yield Broken(
            path="task.top_k",
            message="rates the tokens of an expected answer, and none is named",
            suggestion="name its column in prompt.reference",
            uses=("prompt.reference", "hooks"),
        )
    if task.top_k is not None and config.prompt.chat is False:
        yield Broken(
            path="task.top_k",
            message="rates an answer in a chat, and prompt.chat is false",
            suggestion="set prompt.chat=true, or leave task.top_k out",
            uses=("prompt.chat",),
        )
    owners = {"choices": "classify", "json_schema": "json", "top_k": "logprob", "side": "embed"}
    for name, owner in owners.items():
        if getattr(task, name) and task.type != owner:
            yield Broken(
                path=f"task.{name}",
                message=f"only {owner} uses it, and the task is {task.type}",
                suggestion=f"set task.type to {owner}, or leave it out",
                uses=("task.type",),
            )


def _judge(config: ScoreConfig) -> Iterator[Broken]:
    judge = config.evaluation.judge
    if not judge.model:
        return
    if not judge.rubric:
        yield Broken(
            path="evaluation.judge.rubric",
            message="the judge is asked nothing",
            suggestion="write what it is asked, as `Is {output} a good answer to {prompt}?`",
            uses=("evaluation.judge.model",),
        )
    elif "{output}" not in judge.rubric:
        yield Broken(
            path="evaluation.judge.rubric",
            message="the judge does not see the answer",
            suggestion="write {output} where the answer belongs",
        )
    if len({choice.strip() for choice in judge.choices}) < max(2, len(judge.choices)):
        yield Broken(
            path="evaluation.judge.choices",
            message="a judge chooses between at least two different grades",
            suggestion="list each once, from best to worst, as `choices: [good, fair, bad]`",
        )


def _evaluation(config: ScoreConfig) -> Iterator[Broken]:
    is_logprob = config.task.type == "logprob"
    wanted = [name for name in config.evaluation.metrics if name in _NEEDS_REFERENCE]
    if is_logprob:  # Without a reference it rates the prompt.
        wanted = [name for name in wanted if name != "perplexity"]
    if wanted and not config.prompt.reference and config.hooks.file is None:
        yield Broken(
            path="evaluation.metrics",
            message=f"{', '.join(wanted)} need an expected answer to compare with",
            suggestion="name its column in prompt.reference",
            uses=("prompt.reference", "hooks"),
        )
    named = wanted if is_logprob else config.evaluation.metrics
    for name in (name for name in _OF_TASK if name in named):
        task, why = _OF_TASK[name]
        if config.task.type != task:
            yield Broken(
                path="evaluation.metrics",
                message=why,
                suggestion=f"set task.type to {task}",
                uses=("task.type",),
            )
    if config.evaluation.dimensions and "retrieval" not in config.evaluation.metrics:
        yield Broken(
            path="evaluation.dimensions",
            message="only the metric retrieval uses it",
            suggestion="add retrieval to evaluation.metrics, or leave it out",
            uses=("evaluation.metrics",),
        )
    if any(size < 1 for size in config.evaluation.dimensions):
        yield Broken(
            path="evaluation.dimensions",
            message="a vector has at least one number",
            suggestion="give lengths such as [64, 128]",
        )


ModelName = Literal["base", "tuned"]


class ChatModel(Section):
    """A model that answers, and its side of the conversation."""

    name: ModelName
    """`base` or `tuned`."""
    model: ScoredModel
    """Where the model is."""
    messages: tuple[Message, ...]
    """The conversation with the model's own earlier answers. The last message is the user's."""


class ChatConfig(RunConfig):
    """One prompt to one or two models."""

    name: str = Field(default="chat", pattern=NAME_PATTERN)
    """The first part of each run id."""
    run: str
    """Id of the training run whose model is asked."""
    after: str = ""
    """Id of the turn before this one; empty for the first."""
    models: tuple[ChatModel, ...] = Field(min_length=1)
    """The models, in the order in which they are shown."""
    template: bool = True
    """Apply the model's chat template; otherwise the texts are continued as they are."""
    sampling: Sampling = Sampling()
    """How the next token is chosen."""
    engine: EngineSettings = EngineSettings()
    """What generates the answers."""
