"""The objectives of a training: what a model learns from its rows, each with its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from llmops_kernel.config import objective_rows as objective_rows  # Adds the formats below.
from llmops_kernel.config.models.fields import Choice, Variants
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.sections import DataConfig

AUTO_CLASSES: Final = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "FEATURE_EXTRACTION": "AutoModel",
    "SEQ_CLS": "AutoModelForSequenceClassification",
}
"""Classes of Transformers by PEFT's names of tasks."""


class ObjectiveConfig(Choice):
    """What is learned. Each objective is a subclass; `worker_side` is its other half."""

    shorthand = "type"
    variants: ClassVar[Variants[ObjectiveConfig]] = Variants(default="sft")
    worker_side: ClassVar[str] = ""
    """`module:class` on the workers (`train.objectives`); empty: the model's own loss."""
    rows: ClassVar[str] = ""
    """The format of its rows (`config.objective_rows`); empty: chats and texts."""
    output: ClassVar[Literal["text", "labels", "reward", "embedding"]] = "text"
    """What the trained model returns."""
    shares_batch: ClassVar[bool] = False
    """The loss of a row depends on the other rows of its micro batch: none are regrouped."""
    has_reference: ClassVar[bool] = False
    """The loss compares the model with what it was before the training."""

    type: str = "sft"

    @property
    def auto_class(self) -> str:
        """Return the class of Transformers that loads its model."""
        return AUTO_CLASSES[self.task_type]

    @property
    def task_type(self) -> str:
        """Return PEFT's name of the task."""
        return {"text": "CAUSAL_LM", "embedding": "FEATURE_EXTRACTION"}.get(self.output, "SEQ_CLS")

    @property
    def has_other_reference(self) -> bool:
        """Return whether the loss compares with another model than the one that is trained."""
        return False

    @property
    def prefixes(self) -> tuple[str, str]:
        """Return what is put before the first text of a row, and before the others."""
        return "", ""

    def read_as(self, data: DataConfig) -> DataConfig:
        """Return how the rows of a data section are read for this objective."""
        if not self.rows:
            return data
        updated = data.model_copy(update={"format": self.rows})
        updated._prefixes = self.prefixes
        return updated


OBJECTIVES: Final = ObjectiveConfig.variants
"""All objectives by name."""


def recorded(config: Mapping[str, Any]) -> ObjectiveConfig:
    """Return the objective of a recorded training config; imitation where it names none."""
    return ObjectiveConfig.model_validate(config.get("objective") or {})


class ReferenceModel(Section):
    """Another model than the trained one, with the same tokenizer."""

    shorthand = "run"

    run: str | None = None
    """A training run, by its id or `last`. The submission sets `id` to its result's folder."""
    id: str = ""
    """A name of the built-in catalogue, a folder of a model or adapter, or a hub id."""


_PREFERENCE = "llmops_kernel.train.objectives.preference"
_HEADS = "llmops_kernel.train.objectives.heads"


@OBJECTIVES.add
class SftObjective(ObjectiveConfig):
    variant_name = "sft"
    summary = "learns the answers of chats, or texts"

    type: Literal["sft"] = "sft"


@OBJECTIVES.add
class DpoObjective(ObjectiveConfig):
    variant_name = "dpo"
    summary = "learns to prefer one of two answers to the other, compared with the model as it was"
    worker_side = f"{_PREFERENCE}:Dpo"
    rows = "preference"
    has_reference = True

    type: Literal["dpo"] = "dpo"
    beta: float = Field(default=0.1, gt=0)
    """How strongly the model is held to what it was: larger values change it less."""
    loss_type: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"
    """`sigmoid` is DPO's own loss, `hinge` SLiC's, `ipo` compares log-probabilities a token."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of the pairs whose preference is thought to be wrong (conservative DPO)."""
    reference: ReferenceModel = ReferenceModel()
    """Compare with this model instead of the one that the training begins with. It is asked about all rows once, before the first step."""

    @property
    def has_other_reference(self) -> bool:
        return bool(self.reference.id or self.reference.run)


@OBJECTIVES.add
class OrpoObjective(ObjectiveConfig):
    variant_name = "orpo"
    summary = "learns the preferred answer and its odds against the other, without a reference"
    worker_side = f"{_PREFERENCE}:Orpo"
    rows = "preference"

    type: Literal["orpo"] = "orpo"
    beta: float = Field(default=0.1, gt=0)
    """Weight of the odds ratio beside the loss of the preferred answer (the paper's lambda)."""


@OBJECTIVES.add
class SimpoObjective(ObjectiveConfig):
    variant_name = "simpo"
    summary = "learns to prefer one of two answers by their mean log-probability"
    worker_side = f"{_PREFERENCE}:Simpo"
    rows = "preference"

    type: Literal["simpo"] = "simpo"
    beta: float = Field(default=2.0, gt=0)
    """Scale of the mean log-probability of a token."""
    gamma: float = Field(default=1.0, ge=0)
    """Margin by which the preferred answer is to be better."""


@OBJECTIVES.add
class DistillObjective(ObjectiveConfig):
    variant_name = "distill"
    summary = "learns a teacher's probabilities of the tokens of answers"
    worker_side = "llmops_kernel.train.objectives.distill:Distill"
    rows = "distilled"

    type: Literal["distill"] = "distill"
    divergence: Literal["forward", "reverse"] = "forward"
    """`forward` KL: the student covers all that the teacher thinks probable; `reverse`: it keeps to what the teacher thinks most probable (MiniLLM)."""
    temperature: float = Field(default=1.0, gt=0)
    """Divides the log-probabilities of both before they are compared: larger values look more at improbable tokens."""
    hard_weight: float = Field(default=0.0, ge=0, le=1)
    """Weight of the answers themselves, as objective sft learns them; the teacher's is the rest, up to 1."""


@OBJECTIVES.add
class KtoObjective(ObjectiveConfig):
    variant_name = "kto"
    summary = "learns from single answers that are marked as good or bad"
    worker_side = f"{_PREFERENCE}:Kto"
    rows = "rated"
    shares_batch = True
    has_reference = True

    type: Literal["kto"] = "kto"
    beta: float = Field(default=0.1, gt=0)
    """How strongly the model is held to what it was: larger values change it less."""
    desirable_weight: float = Field(default=1.0, gt=0)
    """Weight of good answers."""
    undesirable_weight: float = Field(default=1.0, gt=0)
    """Weight of bad answers."""


@OBJECTIVES.add
class RewardObjective(ObjectiveConfig):
    variant_name = "reward"
    summary = "learns one number for each answer, higher for the preferred one of two"
    worker_side = f"{_HEADS}:Reward"
    rows = "preference"
    output = "reward"

    type: Literal["reward"] = "reward"
    center_rewards_coefficient: float = Field(default=0.0, ge=0)
    """Weight of a term that keeps the mean of the rewards near 0; TRL suggests 0.01."""


@OBJECTIVES.add
class ClassifyObjective(ObjectiveConfig):
    variant_name = "classify"
    summary = "learns the label, or the labels, of a text or chat"
    worker_side = f"{_HEADS}:Classify"
    rows = "labelled"
    output = "labels"

    type: Literal["classify"] = "classify"
    labels: tuple[str, ...] = ()
    """Names of the labels, in the order of the model's outputs; empty: those of the training rows, sorted."""
    multi_label: bool = False
    """Each row has a list of labels, any number of which are true."""

    @field_validator("labels", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """YAML reads `[0, 1]` as numbers, and `[yes, no]` as true and false."""
        return tuple(map(str, value)) if isinstance(value, list | tuple) else value


@OBJECTIVES.add
class RegressObjective(ObjectiveConfig):
    variant_name = "regress"
    summary = "learns a number, or several, for a text or chat"
    worker_side = f"{_HEADS}:Regress"
    rows = "labelled"
    output = "labels"

    type: Literal["regress"] = "regress"


@OBJECTIVES.add
class EmbedObjective(ObjectiveConfig):
    variant_name = "embed"
    summary = "learns vectors of texts: near for a query and what answers it, far for all others"
    worker_side = "llmops_kernel.train.objectives.embed:Embed"
    rows = "pairs"
    output = "embedding"
    shares_batch = True

    type: Literal["embed"] = "embed"
    loss_type: Literal["infonce", "triplet", "cosine"] = "infonce"
    """`infonce`: the positive among all other texts of the micro batch; `triplet`: nearer than the row's own negative, by `margin`; `cosine`: the similarity of two texts is their `score`."""
    temperature: float = Field(default=0.05, gt=0)
    """Divides the similarities of `infonce`: smaller values look at the hardest negatives."""
    margin: float = Field(default=0.5, gt=0)
    """How much nearer than its negative a positive is to be, for `triplet`, in cosine distance."""
    all_workers: bool = True
    """Texts of the other workers' micro batches are negatives too, for `infonce`."""
    mini_batch_size: int | None = Field(default=None, ge=1)
    """Texts of one forward pass (GradCache): for micro batches that do not fit into memory. The losses stay as they are, and each text is read twice."""
    pooling: Literal["last", "mean", "cls"] = "last"
    """The vector of a text: of its last token, the mean of all tokens, or of its first token."""
    dimensions: tuple[int, ...] = ()
    """Matryoshka: also train the vectors cut to these lengths, such as `[64, 128]`."""
    query_prefix: str = ""
    """Put before each query, such as `query: `; written into the result for others to do the same."""
    document_prefix: str = ""
    """Put before each other text."""

    @property
    def prefixes(self) -> tuple[str, str]:
        return self.query_prefix, self.document_prefix
