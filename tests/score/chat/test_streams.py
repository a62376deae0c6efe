"""Growing answers as journal events: only what was added, a few times a second, one end."""

from __future__ import annotations

from llmops_kernel.errors import ModelError
from llmops_kernel.metrics.events import AnswerEvent, AnyEvent, PhaseEvent
from llmops_kernel.score.chat_engines import AnswerStream
from llmops_kernel.score.engines.protocol import Answer
from llmops_kernel.store.journal.score_view import ChatView


def written(answers: list[Answer], *, every: bool = True) -> tuple[list[AnyEvent], ChatView]:
    events: list[AnyEvent] = []
    stream = AnswerStream("tuned", events.append)
    for answer in answers:
        stream.take(answer)
        if every:
            stream._sent_s = float("-inf")
        stream.tick()
    stream.end()
    stream.end()
    return events, ChatView(events)


def part(text: str, tokens: int) -> Answer:
    return Answer(id=0, text=text, output_tokens=tokens, is_final=False)


def test_each_event_has_what_was_added() -> None:
    events, view = written([part("The", 1), part("The cat", 2), part("The cat sat", 3)])
    assert [event.text for event in events if isinstance(event, AnswerEvent)] == [
        *("The", " cat", " sat"),
        "",
    ]
    answer = view.answers["tuned"]
    assert (answer.text, answer.output_tokens, answer.is_final) == ("The cat sat", 3, True)


def test_a_text_that_changes_is_written_from_where_it_differs() -> None:
    events, view = written([part("caf\ufffd", 1), part("café au", 2)])
    assert view.answers["tuned"].text == "café au"
    assert isinstance(events[1], AnswerEvent)
    assert (events[1].start, events[1].text) == (3, "é au")


def test_a_fast_answer_is_a_few_events() -> None:
    parts = [part("x" * n, n) for n in range(1, 1001)]
    events, view = written(parts, every=False)
    assert len(events) < 20
    assert view.answers["tuned"].text == "x" * 1000


def test_an_error_and_a_stop_are_the_end() -> None:
    events: list[AnyEvent] = []
    AnswerStream("base", events.append).end(ModelError("no such model", remedy="name another"))
    AnswerStream("tuned", events.append).end(cancelled=True)
    answers = ChatView(events).answers
    assert (answers["base"].finish, answers["base"].error) == ("error", "no such model")
    assert answers["base"].remedy == "name another"
    assert (answers["tuned"].finish, answers["tuned"].error) == ("cancelled", "")


def test_the_time_to_the_first_token_is_from_the_submission() -> None:
    begin = PhaseEvent(name="snapshot", state="begin", time_s=10.0)
    first = AnswerEvent(model="base", text="a", output_tokens=1, time_s=11.5)
    second = AnswerEvent(model="base", start=1, text="b", output_tokens=2, time_s=12.0)
    view = ChatView([second, first, begin])
    assert view.answers["base"].first_token_s == 1.5
    assert view.answers["base"].text == "ab"
    assert view.mean("first_token_s") == 1.5
    assert view.mean("tokens_per_second") is None
