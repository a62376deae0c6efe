"""What `llmops check` would call a problem is said before a run waits for hours to fail of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ConfigError
from llmops_kernel.services.check import check_before
from llmops_kernel.services.data_process import Stop, run_job
from llmops_kernel.store.preview_job import PreviewJob, PreviewLine
from tests.configs import training_config_from_dict


class Counted:
    """The real process, and how often it ran."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(
        self,
        job: PreviewJob,
        *,
        timeout_s: float,
        progress: Callable[[str], None],
        stop: Stop | None,
    ) -> PreviewLine:
        self.times += 1
        return run_job(job, timeout_s=max(timeout_s, 120.0), progress=progress, stop=stop)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 4)
    return Counted()


def config(**data: Any) -> Any:
    more = {"hooks": {"file": data.pop("hooks")}} if "hooks" in data else {}
    whole = {"train": "rows.jsonl", "max_length": 64, **data}
    return training_config_from_dict({"model": "tiny-llama", "data": whole, **more})


def test_rows_that_would_fail_the_run_are_refused_with_their_number(
    run: Counted, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": 3}\n')
    with pytest.raises(ConfigError, match="Row 2") as caught:
        check_before(config(), tmp_path, run=run)
    assert caught.value.problems[0].path == "data.train"


def test_what_is_right_is_tried_once_until_the_rows_change(run: Counted, tmp_path: Path) -> None:
    check_before(config(), tmp_path, run=run)
    check_before(config(), tmp_path, run=run)
    assert run.times == 1
    os.utime(tmp_path / "rows.jsonl", (1, 1))
    check_before(config(), tmp_path, run=run)
    assert run.times == 2
    check_before(config(max_length=32), tmp_path, run=run)
    assert run.times == 3


def test_a_hook_that_needs_a_worker_is_told_not_refused(run: Counted, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(
        "import os\n\ndef format_example(row):\n    return {'text': os.environ['RANK']}\n"
    )
    said: list[str] = []
    check_before(config(hooks="hooks.py"), tmp_path, progress=said.append, run=run)
    assert [line for line in said if line.startswith("Warning: ") and "RANK" in line]


LABELLED = [{"text": f"row {number}", "label": "ab"[number % 2]} for number in range(6)]
FOUND = {
    "one side is missing": (
        "dpo",
        [{"prompt": "a", "chosen": "b", "rejected": "c"}, {"prompt": "a", "chosen": "b"}],
        "Row 2|row 2",
    ),
    "both sides are equal": (
        "reward",
        [{"prompt": "a", "chosen": "b", "rejected": "b"}],
        "are equal",
    ),
    "only one label": ("classify", LABELLED[::2], "all rows have the label 'a'"),
    "a score": ("embed", [{"text1": "a", "text2": "b", "score": 1}], "set objective.loss_type"),
    "a teacher of another model": (
        "distill",
        [
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b"},
                ],
                "target_tokens": [3],
                "top_logprobs": {"token_ids": [[3, 4]], "logprobs": [[-0.5, -1.5]]},
            }
        ],
        r"Row 1.*the answer is 2 tokens for the student and 1 for the teacher",
    ),
    "no positive": ("embed", [{"query": "a"}], "positive"),
}


@pytest.mark.parametrize("case", FOUND)
def test_rows_that_an_objective_cannot_learn_from_are_refused(
    run: Counted, tmp_path: Path, case: str
) -> None:
    objective, rows, words = FOUND[case]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {"model": "tiny-llama", "data": {"train": "rows.jsonl"}, "objective": objective}
    with pytest.raises(ConfigError, match=words):
        check_before(training_config_from_dict(values), tmp_path, run=run)


def test_labels_that_are_rare_or_unknown_are_named(run: Counted, tmp_path: Path) -> None:
    rows = [*LABELLED, {"text": "once", "label": "c"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "eval.jsonl").write_text('{"text": "new", "label": "d"}\n')
    values = {"model": "tiny-llama", "data": {"train": "rows.jsonl"}, "objective": "classify"}
    told: list[str] = []
    check_before(
        training_config_from_dict(values),
        tmp_path,
        run=run,
        progress=lambda text: told.append(text),
    )
    assert any("1 label on one training row only: c" in text for text in told)
    values["data"] = {"train": "rows.jsonl", "eval": "eval.jsonl"}
    with pytest.raises(ConfigError, match="'d' is not among those of the training rows"):
        check_before(training_config_from_dict(values), tmp_path, run=run)
