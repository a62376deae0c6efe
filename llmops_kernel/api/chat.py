"""What `run.chat` returns: the answers of both models, shown while they grow."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from llmops_kernel.api.environment import in_notebook
from llmops_kernel.errors import RunFailedError, inert
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.chat import LABELS, ChatSettings, Conversation, Turn
from llmops_kernel.store.journal.score_view import ChatAnswer

_SHOWN_EVERY = 0.2
_CELL = "white-space:pre-wrap;overflow-wrap:anywhere;text-align:left;vertical-align:top"


class ChatReply:
    """The answers to one prompt; `chat` asks on in the same conversation."""

    def __init__(self, backend: Backend, turn: Turn, settings: ChatSettings) -> None:
        self._backend, self._turn, self._settings = backend, turn, settings
        self.prompt = turn.prompt
        self.run_id = turn.config.run
        """The training run whose model was asked."""
        self.turn_id = turn.id
        self._shown_in: int | None = None
        """Number of the cell in which it was shown while it grew."""

    @property
    def answers(self) -> dict[str, ChatAnswer]:
        """The answers by model (`base`, `tuned`), with tokens and speed."""
        return {answer.model: answer for answer in self._turn.answers}

    @property
    def base(self) -> str:
        """The text of the base model; empty if it was not asked."""
        return self._text("base")

    @property
    def tuned(self) -> str:
        """The text of the fine-tuned model; empty if it was not asked."""
        return self._text("tuned")

    def _text(self, name: str) -> str:
        found = self.answers.get(name)
        return "" if found is None else found.text

    def chat(self, prompt: str) -> ChatReply:
        """Ask on: each model continues its own answers."""
        return chat(self._backend, self.run_id, prompt, settings=self._settings, after=self.turn_id)

    def __repr__(self) -> str:
        parts = [f"{LABELS[a.model]}: {a.text or a.error}" for a in self._turn.answers]
        return inert("\n\n".join(parts))

    def _repr_html_(self) -> str:
        return html(self._turn)

    def _ipython_display_(self) -> None:
        """Show it, but not once more in the cell that has shown it while it grew."""
        from IPython.display import HTML, display

        if self._shown_in is None or self._shown_in != _cell_number():
            if in_notebook():
                display(HTML(self._repr_html_()))
            else:
                print(self)


def chat(
    backend: Backend, run: str, prompt: str, *, settings: ChatSettings, after: str = ""
) -> ChatReply:
    """Ask and wait for the answers; a notebook shows them while they grow.

    The kernel's interrupt stops the answers. Raises RunFailedError when no model answered.
    """
    conversation = Conversation(backend, run, settings=settings, after=after)
    turn = conversation.ask(prompt)
    reply = ChatReply(backend, turn, settings)
    try:
        if in_notebook():
            reply._shown_in = _cell_number()
            _show(turn)
        else:
            for _ in turn.follow():
                pass
    except KeyboardInterrupt:
        turn.stop()
    if turn.state == "FAILED":
        view = turn.view
        raise RunFailedError(view.message or "The turn failed.", remedy=view.remedy)
    return reply


def _show(turn: Turn) -> None:
    """Update one output of the cell while the answers grow."""
    from IPython.display import HTML, display

    handle = display(HTML(html(turn)), display_id=True)
    shown_s = 0.0
    for _ in turn.follow():
        if time.monotonic() - shown_s >= _SHOWN_EVERY:
            shown_s = time.monotonic()
            handle.update(HTML(html(turn)))
    handle.update(HTML(html(turn)))


def _cell_number() -> int | None:
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return None if shell is None else int(shell.execution_count)


def html(turn: Turn) -> str:
    """The answers as a table, one column a model; a model's text is never read as HTML."""
    heads = "".join(f"<th>{escape(LABELS[a.model])}{_speed(a)}</th>" for a in turn.answers)
    cells = "".join(f'<td style="{_CELL}">{_cell(a)}</td>' for a in turn.answers)
    line = f"<div><i>{escape(turn.line)}</i></div>" if turn.line and not turn.is_over else ""
    width = 100 // max(1, len(turn.names))
    columns = f'<col style="width:{width}%">' * len(turn.names)
    return (
        f'<table style="width:100%;table-layout:fixed">{columns}'
        f"<thead><tr>{heads}</tr></thead><tbody><tr>{cells}</tr></tbody></table>{line}"
    )


def _cell(answer: ChatAnswer) -> str:
    text = escape(answer.text)
    if answer.error:
        remedy = f" Try: {answer.remedy}" if answer.remedy else ""
        text += f"<b>{escape(answer.error + remedy)}</b>"
    return text


def _speed(answer: ChatAnswer) -> str:
    rate = answer.tokens_per_second
    return "" if rate is None else f" <small>{rate:.1f} tokens/s</small>"
