"""The kind `chat`: one prompt to the fine-tuned model of a run and to its base."""

from __future__ import annotations

from llmops_kernel.kinds.kind import START_PHASES, START_WORDS, Column, Figure, RunKind
from llmops_kernel.store.journal.score_view import ChatView
from llmops_kernel.store.record import RunRecord

_SHOWN = 60


def describe(record: RunRecord) -> str:
    """Return `chat with lora-260101-120000-abcd: What is the capital of France?`."""
    config = record.config
    models = config.get("models") or [{}]
    messages = models[0].get("messages") or [{}]
    prompt = " ".join(str(messages[-1].get("content", "")).split())
    shown = prompt if len(prompt) <= _SHOWN else prompt[: _SHOWN - 1] + "…"
    return f"chat with {config.get('run', '')}: {shown}"


CHAT = RunKind(
    name="chat",
    title="Turn of a chat",
    entrypoint="exec python -m llmops_kernel.score.chat_driver",
    view=ChatView,
    figures=(
        Figure.rate(
            "tokens_per_second",
            "tokens/s",
            "from the first token of an answer to its last, mean of the models",
            lambda view: view.mean("tokens_per_second"),
            listed=True,
        ),
        Figure(
            key="first_token_s",
            label="first token",
            unit="seconds",
            better="lower",
            hint="from the submission to the first text of an answer, mean of the models",
            value=lambda view: view.mean("first_token_s"),
        ),
    ),
    columns=(
        Column.of_field("tokens", "tokens", "count", field="output_tokens"),
        Column.of_field("tokens_per_second", "tokens/s", "per_second"),
    ),
    curve="tokens_per_second",
    phases=(*START_PHASES, "engine", "answer"),
    words={
        **START_WORDS,
        "engine": "Loading the model into the engine",
        "answer": "Waiting for the first words",
    },
    no_progress="This turn ended before its first answer.",
    actions=frozenset({"stop", "delete"}),
    describe=describe,
)
