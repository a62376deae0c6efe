"""The score config (`*.score.yaml`)."""

from __future__ import annotations

from pydantic import Field

from llmops_kernel.config.models.score.data import PromptSettings, ScoreInput, ScoreOutput
from llmops_kernel.config.models.score.evaluation import ScoreEvaluation
from llmops_kernel.config.models.score.model import EngineSettings, ScoredModel
from llmops_kernel.config.models.score.rules import broken_rules
from llmops_kernel.config.models.score.task import Sampling, Task
from llmops_kernel.config.models.section import NAME_PATTERN, Broken, RunConfig, Section


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

    def broken_rules(self) -> list[Broken]:
        return broken_rules(self)

    @property
    def model_id(self) -> str | None:
        return self.model.id or None
