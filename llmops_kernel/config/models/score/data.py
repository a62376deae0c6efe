"""Input and output of a score config."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from llmops_kernel.config.models.section import Section


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
    chat: bool = True
    """Pass a text as a user's message through the model's chat template."""
    reference: str = ""
    """Column or template of the expected answer, for evaluation."""


class ScoreOutput(Section):
    """Where the scored rows go."""

    url: str = ""
    """Folder or URL, of one run: another run is refused. Default: the run's folder."""
    part_rows: int = Field(default=1000, ge=1)
    """Rows of one output file; also the unit that is done again after a failure."""
