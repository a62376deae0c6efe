"""`llmops chat`: ask the fine-tuned model of a run and its base, side by side."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import clusters as complete_cluster
from llmops_kernel.cli.runs.submit import RunRef

if TYPE_CHECKING:
    from rich.console import Console

    from llmops_kernel.services.chat import Conversation, Turn

Prompt = Annotated[str | None, typer.Option(help="Send this prompt and exit.")]
System = Annotated[str, typer.Option(help="Instructions before the conversation.")]
MaxTokens = Annotated[int, typer.Option(help="Maximum length of an answer, in tokens.", min=1)]
Temperature = Annotated[
    float, typer.Option(help="Sampling temperature; 0: greedy decoding.", min=0)
]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the text, without the chat template.")]
ClusterName = Annotated[
    str, typer.Option(help="Default: the cluster of the run.", autocompletion=complete_cluster)
]
_HELP = "Commands: /reset starts a new conversation, /exit or Ctrl-D ends, Ctrl-C stops an answer."
_PROMPT = "you> "


class Model(StrEnum):
    """A model of a chat with two."""

    BASE = "base"
    TUNED = "tuned"


@command(RUNS, example="llmops chat last --prompt 'What is on the menu?'")
def chat(
    run: RunRef = "last",
    prompt: Prompt = None,
    system: System = "",
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 0.0,
    only: Annotated[Model | None, typer.Option(help="Ask only this model.")] = None,
    engine: Annotated[str, typer.Option(help="auto, vllm or transformers.")] = "auto",
    raw: Raw = False,
    cluster: ClusterName = "",
) -> None:
    """Chat with the model that a run has trained, beside its base model, on the run's cluster.

    `last` is the newest run that has written a model. The first turn loads the models.
    """
    from llmops_kernel.cli.console import out
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.chat import ChatSettings, Conversation

    settings = ChatSettings(
        system=system,
        max_tokens=max_tokens,
        temperature=temperature,
        only="" if only is None else only.value,
        engine=engine,
        template=not raw,
        cluster=cluster,
    )
    conversation = Conversation(current(), run, settings=settings)
    if prompt is not None:
        sys.exit(_answer(conversation, prompt, out()))
    _converse(conversation, out())


def _converse(conversation: Conversation, console: Console) -> None:
    """Read prompts until Ctrl-D. Prompts that are piped in are answered one after the other."""
    from llmops_kernel.cli.console import show_error
    from llmops_kernel.errors import LLMOpsError

    is_terminal = sys.stdin.isatty()
    if is_terminal:
        import readline  # noqa: F401  # `input` then has arrow keys and a history.

        console.print(f"Chat with {conversation.run_id}. {_HELP}", markup=False)
    while True:
        try:
            text = input(_PROMPT if is_terminal else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            console.print()
            continue
        if text in ("/exit", "/quit"):
            return
        if text == "/reset":
            conversation.reset()
            console.print("The conversation is empty.")
        elif text.startswith("/"):
            console.print(_HELP, markup=False)
        elif text:
            try:
                _answer(conversation, text, console)
            except LLMOpsError as error:
                show_error(error)


def _answer(conversation: Conversation, prompt: str, console: Console) -> int:
    """Ask and show the answers; return the exit code."""
    from llmops_kernel.cli.runs.chat_screen import print_answers, watch
    from llmops_kernel.cli.runs.submit import EXIT_CODES

    turn: Turn | None = None
    try:
        turn = conversation.ask(prompt)
        watch(turn, console)
    except KeyboardInterrupt:
        if turn is None:
            return EXIT_CODES["STOPPED"]
        turn.stop()
    print_answers(turn, console)
    return EXIT_CODES.get(turn.state, 1)
