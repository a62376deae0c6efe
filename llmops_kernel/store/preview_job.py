"""A look at the data of a config: what is asked of the process that looks, and what it answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Side = Literal["train", "eval"]
Kind = Literal["loss", "context", "cut"]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PreviewJob(_Answer):
    """A data preview to make. Carries no secret: tokens come from the environment."""

    config: dict[str, Any]
    """A checked training config."""
    workspace: str
    """Folder that relative paths of the config start from."""
    max_rows: int = 2000
    """Rows of each source that are tokenised."""
    num_shown: int = 5
    side: Side = "train"
    """Side whose rows are shown."""
    row: int | None = None
    """Show this one row whole, and look at no other."""
    max_tokens: int | None = 400
    """Tokens of each row that are shown; null: all of them."""
    check: bool = False
    """Report what is wrong instead of figures and rows: all of it at once."""
    skip: list[str] = []
    """Fields, with `check`, that are known to be wrong, so that their files are not read."""


class Piece(_Answer):
    """A part of a row: the text of one token, or of several that make one character."""

    text: str
    ids: list[int]
    kind: Kind
    """`loss`: the model is trained to write it; `context`: it only reads it; `cut`: it is beyond
    `max_length`."""
    special: bool
    """Whether the tokenizer put a token of its own there, such as the end of a turn."""


class ShownRow(_Answer):
    """A row as the model sees it."""

    number: int | None
    """Its number in the source, from 1; null where only a part of a large file was read."""
    where: str = ""
    """Its source, and its number in it, where there are several sources."""
    format: str
    """Format of the row."""
    num_tokens: int
    """Before the row is cut."""
    num_loss: int
    """Tokens that the loss counts."""
    num_hidden: int
    """Tokens at the end that are not among the pieces."""
    num_sequences: int = 1
    """Sequences that it is trained in: several of a long text."""
    pieces: list[Piece]


class Bin(_Answer):
    """Rows with a length above `above` and up to `up_to` tokens."""

    above: int
    up_to: int | None
    """null: any length."""
    rows: int


class Lengths(_Answer):
    """Tokens of a row, before it is cut."""

    shortest: int
    median: int
    mean: float
    longest: int
    bins: list[Bin]


class FieldUse(_Answer):
    """Use of a field, where it may surprise its user."""

    text: str
    """A sentence, without its end: `12 rows have `images`, which is not used`."""
    rows: int


class SourceRows(_Answer):
    """Findings in the training or evaluation rows before they are tokenised."""

    source: str
    total_rows: int | None
    """Rows that a run uses; null where that is not known without reading all of them."""
    is_estimate: bool
    """Whether `total_rows` is estimated from the size of the file."""
    num_compared: int
    """Rows that were read, and compared with each other."""
    where: str
    """Which rows of a larger source these are, in words."""
    formats: dict[str, int]
    """Rows of each format."""
    num_duplicates: int
    """Rows that repeat an earlier one."""
    duplicates: list[list[int]]
    """Row numbers of the first repeated rows; each list is one group."""
    num_unanswered: int = 0
    """Chats in which the assistant says nothing."""
    unanswered: list[int] = []
    """Numbers of the first of these rows."""
    num_broken: int = 0
    """Rows that could not be read; the run leaves them out (`data.on_error: skip`)."""
    broken: list[str] = []
    """Problems of the first of them."""
    fields: list[FieldUse] = []
    """Remarks on fields of the rows."""
    unused: list[str] = []
    """Columns that are not used."""


class SourceReport(SourceRows):
    """Findings in the training or evaluation rows."""

    num_rows: int
    """Rows that were tokenised."""
    lengths: Lengths
    num_cut: int
    """Rows longer than `max_length` that are truncated."""
    num_split: int = 0
    """Texts longer than `max_length` that become several sequences."""
    num_apart: int = 0
    """Chats with several answers, each of which is a sequence, as the chat template wants it."""
    num_sequences: int = 0
    """Sequences that the rows that are used become, before they are packed."""
    num_masked: int
    """Rows in which no token counts for the loss; a run leaves them out."""
    masked: list[int]
    """Numbers of the first of these rows."""
    num_tokens: int
    """Tokens of the rows that are used, after the cut."""
    num_loss: int
    """Tokens among them that the loss counts."""

    @property
    def is_sample(self) -> bool:
        return self.total_rows is None or self.num_rows < self.total_rows

    @property
    def num_used(self) -> int:
        """Return the number of tokenised rows that a run trains on."""
        return self.num_rows - self.num_masked


class Leaks(_Answer):
    """Evaluation rows that are also training rows."""

    rows: int
    of: int
    """Evaluation rows that were compared."""
    pairs: list[tuple[int, int]]
    """Row numbers in the evaluation and the training rows, of the first few."""


class Epoch(_Answer):
    """One pass over the training rows in numbers."""

    num_workers: int
    micro_batch_size: int | None
    """None for `auto`, which the run finds out; so is the padding of micro batches then."""
    accumulation_steps: int
    global_batch_size: int
    packing: bool
    padding_free: bool
    groups_by_length: bool
    sequences: int | None
    """Rows, or packed sequences, of one epoch; null where the number of rows is unknown."""
    steps: int | None
    """Optimizer steps of one epoch."""
    tokens: int | None
    """Tokens of one epoch, padding apart."""
    is_estimate: bool
    padding_cpu: float | None
    """Share of the batches' positions that is padding, on workers without a GPU."""
    padding_gpu: float | None
    """The same on GPUs, where widths are multiples of 8; null where the config excludes GPUs."""
    run_steps: int | None
    """Optimizer steps of the whole run; null where it is unknown."""
    has_max_steps: bool = False
    """Whether the config gives them."""


class SourceShare(_Answer):
    """Share of one of several sources of training rows in an epoch."""

    source: str
    weight: float
    """How often each of its rows is seen in an epoch."""
    total_rows: int | None
    """Rows that it has; null where that is not known without reading all of them."""
    is_estimate: bool
    """Whether `total_rows` is estimated from the size of the file."""
    is_sample: bool
    """Whether its tokens are estimated from some of its rows."""
    rows: int | None
    """Rows of it in an epoch; null: unknown, so are the shares then."""
    row_share: float | None
    """Its share of the rows of an epoch."""
    tokens: int | None
    """Tokens of it in an epoch."""
    token_share: float | None
    """Its share of the tokens of an epoch."""


class DataPreview(_Answer):
    """A config's data as the model will see it."""

    model: str
    max_length: int
    loss_on: str
    format: str
    """`data.format` of the config."""
    has_hook: bool
    """Whether `format_example` of the hooks file makes the rows."""
    train: SourceReport
    """Report over the rows of all sources."""
    sources: list[SourceShare] = []
    """Empty where there is only one source of training rows."""
    eval: SourceReport | None
    leaks: Leaks | None
    """null without evaluation rows."""
    epoch: Epoch
    side: Side
    template: list[str] = []
    """Remarks on the model's chat template, which makes texts of these rows."""
    rows: list[ShownRow]
    took_s: float


class Finding(_Answer):
    """A sentence of a check."""

    path: str
    """The config's field, such as `data.train`."""
    level: Literal["problem", "warning", "note"]
    """`problem`: a run would fail; `note`: what was checked, or was not."""
    message: str
    remedy: str = ""


class CheckedSource(_Answer):
    """The rows of one source of a config."""

    path: str
    """The field that names it: `data.train`, `data.train.1.path`, `data.eval`."""
    rows: SourceReport | SourceRows
    """Without figures of tokens where the tokenizer is not on this machine."""
    leaks: Leaks | None = None
    """Evaluation rows among the training rows; null for training rows."""


class DataCheck(_Answer):
    """Findings of a check; a source that could not be read is only among the findings."""

    max_length: int
    has_hook: bool
    """Whether `format_example` of the hooks file makes the rows."""
    sources: list[CheckedSource]
    findings: list[Finding]


class PreviewLine(BaseModel):
    """A line that the process prints: any number of `progress`, then one of the others."""

    kind: Literal["progress", "done", "row", "checked", "failed"]
    preview: DataPreview | None = None
    check: DataCheck | None = None
    row: ShownRow | None = None
    text: str = ""
    remedy: str = ""
    error: str = "DataError"
    """Class name of `llmops_kernel.errors`."""
