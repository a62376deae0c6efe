"""The score config (`*.score.yaml`)."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from llmops_kernel.config.models.packages import Packages
from llmops_kernel.config.models.score.data import (
    EngineSettings,
    PromptSettings,
    Sampling,
    ScoredModel,
    ScoreEvaluation,
    ScoreInput,
    ScoreOutput,
    Task,
)
from llmops_kernel.config.models.section import NAME_PATTERN, Broken, RunConfig, Section

_NEEDS_REFERENCE = ("exact_match", "field_f1", "rouge", "bleu", "perplexity")


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

    def broken_rules(self) -> list[Broken]:
        return [*_model(self), *_prompt(self), *_task(self), *_evaluation(self), *_judge(self)]

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
    task = config.task
    if task.type == "classify" and len(set(task.choices)) < 2:
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
    for name, owner in (("choices", "classify"), ("json_schema", "json")):
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
    if "perplexity" in wanted:
        yield Broken(
            path="evaluation.metrics",
            message="perplexity is of tokens that are given, which only the task logprob rates",
            suggestion="set task.type to logprob",
            uses=("task.type",),
        )
    if "calibration" in config.evaluation.metrics and config.task.type != "classify":
        yield Broken(
            path="evaluation.metrics",
            message="calibration compares a choice's probability with how often it is correct",
            suggestion="set task.type to classify",
            uses=("task.type",),
        )
