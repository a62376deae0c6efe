"""Failures as a user meets them, through the whole path on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import llmops_kernel as llmops

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

Submit = Callable[..., llmops.Run]


def test_an_exception_on_one_rank_is_reported_once_with_its_line_and_not_retried(
    submit: Submit, workspace: Path
) -> None:
    (workspace / "hooks.py").write_text(
        "import os\n\n\ndef format_example(row):\n"
        "    if os.environ['RANK'] == '1' and 'number 7 ' in row['text']:\n"
        "        raise KeyError('seven')\n"
        "    return row\n"
    )
    run = submit(max_failures=3)
    assert run.wait(300, raise_on_failure=False) == "FAILED"
    failures = [event for event in run.events() if event.kind == "failure"]
    assert len(failures) == 1
    failure = failures[0]
    assert (failure.file, failure.line, failure.ranks) == ("hooks.py", 6, (1,))
    assert "seven" in run.view.message
    assert not run.view.restarts
    with pytest.raises(llmops.LLMOpsError, match=r"hooks\.py:6"):
        run.wait(10)
    assert run.logs().count("raise KeyError('seven')") >= 1


def test_out_of_memory_with_every_setting_says_what_was_asked_and_tried(
    submit: Submit, workspace: Path
) -> None:
    (workspace / "hooks.py").write_text(
        "import torch\n\n\ndef build_model(config):\n    torch.empty(2**44)\n"
    )
    run = submit(max_failures=0)
    assert run.wait(300, raise_on_failure=False) == "FAILED"
    assert run.view.message.startswith("Out of memory")
    assert "you tried to allocate" in run.view.message
    assert "GB of host memory free" in run.view.message
    assert "one of: data.max_length=32" in run.view.remedy
    assert run.view.remedy.endswith(
        "the run had gone on with micro_batch_size=1 (was 2, global batch kept);"
        " then parallelism.gradient_checkpointing=true"
    )
    assert [restart.from_step for restart in run.view.restarts] == [0, 0]


def test_a_full_disk_is_reported(submit: Submit, workspace: Path) -> None:
    """A limit on the size of a file stands in for a disk without room: the same failing write."""
    (workspace / "hooks.py").write_text(
        "import errno\nfrom transformers import TrainerCallback\n\n\n"
        "class Full(TrainerCallback):\n"
        "    def on_step_end(self, args, state, control, **kwargs):\n"
        "        if state.global_step == 3:\n"
        "            raise OSError(errno.ENOSPC, 'No space left on device', args.output_dir)\n\n\n"
        "def callbacks():\n    return [Full()]\n"
    )
    run = submit(max_failures=0)
    assert run.wait(300, raise_on_failure=False) == "FAILED"
    assert "disk is full" in run.view.message
    assert "LLMOPS_HOME" in run.view.remedy
    assert run.view.last_step == 2 or run.view.last_step == 3


def test_more_workers_than_the_cluster_has_is_reported_at_once(submit: Submit) -> None:
    run = submit(num_workers=64, global_batch_size=128)
    assert run.wait(120, raise_on_failure=False) == "FAILED"
    assert "64 workers do not fit" in run.view.message


@pytest.mark.parametrize("then", ["pass", "raise SystemError('enough')"])
def test_what_workers_print_last_is_in_the_log_when_the_run_has_ended(
    submit: Submit, workspace: Path, then: str
) -> None:
    (workspace / "hooks.py").write_text(
        "import os\nfrom transformers import TrainerCallback\n\n\n"
        "class Last(TrainerCallback):\n"
        "    def on_train_end(self, *args, **kwargs):\n"
        "        print('last of rank', os.environ['RANK'])\n"
        f"        {then}\n\n\n"
        "def callbacks():\n    return [Last()]\n"
    )
    run = submit(max_steps=2, max_failures=0)
    log = run.logs() if run.wait(300, raise_on_failure=False) else ""
    assert run.view.state == ("SUCCEEDED" if then == "pass" else "FAILED"), log
    last = [line for line in log.splitlines() if "last of rank" in line]
    assert {line[-1] for line in last} == {"0", "1"} if then == "pass" else last, log
    assert "last line of worker" not in log
