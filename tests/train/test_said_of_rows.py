"""What a run says of rows that it does not use as they are, in memory and streamed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.journal.training_view import TrainingView
from tests.train.conftest import rows
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Config = Callable[..., Any]
BOTH = pytest.mark.parametrize("streaming", [False, True])


def write(path: Path, every: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in every))


def config(make_config: Config, *, streaming: bool, **data: Any) -> Any:
    one_epoch = {"max_steps": None, "num_epochs": 1}
    data = {"streaming": streaming, **data}
    return make_config(data=data, training=one_epoch, parallelism={"num_workers": 1})


@BOTH
def test_fields_that_are_not_used_are_named_and_bad_answers_left_out(
    make_config: Config, workspace: Path, tmp_path: Path, streaming: bool
) -> None:
    every = [{**row, "topic": "sums"} for row in rows(24)]
    for row in every[:3]:
        row["images"] = ["a.png"]
    for row in every[3:5]:
        row |= {"label": False, "completion": "BAD " * 20}
    write(workspace / "train.jsonl", every)
    events = run(config(make_config, streaming=streaming), tmp_path / "run", workspace)
    said = [event.message for event in of(events, "warning")]
    where = "the first rows of train.jsonl" if streaming else "train.jsonl"
    assert (
        f"{where}: 3 rows have `images`, which is not used: this training reads"
        in said[0 if streaming else 1]
    )
    assert any("2 rows have `label`, which is 0 or false" in text for text in said)
    assert any("2 rows of train.jsonl have no token that counts" in text for text in said)
    (phase,) = [e for e in of(events, "phase") if (e.name, e.state) == ("data", "end")]
    assert "columns not used: topic" in phase.detail
    # The bad answers have changed nothing: a set without them has the same tokens to learn.
    write(workspace / "train.jsonl", [row for row in every if row.get("label") is None])
    again = run(config(make_config, streaming=False, shuffle=False), tmp_path / "good", workspace)
    counted = sum(step.tokens for step in of(again, "step"))
    if not streaming:
        assert sum(step.tokens for step in of(events, "step")) == counted


def test_kept_rows_say_the_same_of_their_fields(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    write(workspace / "train.jsonl", [{**row, "images": ["a.png" * 40]} for row in rows(400)])
    found = []
    for number in range(2):
        settings = make_config(training={"max_steps": 1})
        events = run(settings, tmp_path / str(number), workspace, cache=tmp_path / "cache")
        found.append([event.message for event in of(events, "warning")])
        assert ("earlier run" in of(events, "start")[0].performance) == bool(number)
    assert found[0] == found[1]
    assert "400 rows have `images`" in found[0][0]


@BOTH
def test_what_a_template_refuses_stops_or_is_skipped_as_the_config_says(
    make_config: Config, workspace: Path, tmp_path: Path, tiny_llama: Path, streaming: bool
) -> None:
    """Gemma's templates refuse a system message, and two messages of one role."""
    shutil.copytree(tiny_llama, workspace / "model")
    (workspace / "model" / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    user = {"role": "user", "content": "Hi"}
    bad = {"messages": [user, user, {"role": "assistant", "content": "Yes."}]}
    half = {"prompt": "cut \ud83d", "completion": "a"}
    write(workspace / "train.jsonl", [*rows(16), bad, *rows(4), half])

    def trained(on_error: str) -> list[Any]:
        settings = config(make_config, streaming=streaming, on_error=on_error)
        settings = settings.model_copy(
            update={"model": settings.model.model_copy(update={"id": "model"})}
        )
        return run(settings, tmp_path / on_error, workspace)

    place = r"train\.jsonl, row 17" if streaming else r"train\.jsonl: Row 17"
    with pytest.raises(DataError, match=rf"{place} is refused by .* Conversation roles must"):
        trained("stop")
    if streaming:
        with pytest.raises(DataError, match=r"2 rows .* row 17 is refused .* half of a character"):
            trained("check")
        stopped = FolderTail(tmp_path / "check" / "journal").read()
        assert not [*of(stopped, "start"), *of(stopped, "step")]
    events = trained("skip")
    assert not streaming or TrainingView(events).skipped_rows == 2
    assert all(loss > 0 for loss in losses(events).values())
    (warning,) = [e for e in of(events, "warning") if "skipped" in e.message]
    assert warning.message.startswith("2 rows of train.jsonl skipped: ")
    assert "must alternate" in warning.message
    assert r"half of a character (\ud83d)" in warning.message
