"""A full disk is one sentence, whatever library noticed it and however many files failed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.driver.disk import is_disk_full, reason
from llmops_kernel.errors import StoreError
from llmops_kernel.train.failures import describe, group
from tests.messages import missing

FULL = OSError(errno.ENOSPC, "No space left on device", "/runs/r1/checkpoints/checkpoint-5/0.pt")


def copy_error(num_files: int) -> shutil.Error:
    text = "[Errno 28] No space left on device: '/runs/a' -> '/out/a'"
    return shutil.Error([(f"/runs/file-{i}", f"/out/file-{i}", text) for i in range(num_files)])


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/runs"), True),
        (copy_error(8), True),
        (RuntimeError("I/O error: No space left on device (os error 28)"), True),
        (OSError(errno.EACCES, "Permission denied", "/runs"), False),
        (ValueError("no space between words"), False),
    ],
)
def test_a_full_disk_is_recognized(error: Exception, is_full: bool) -> None:
    assert is_disk_full(error) is is_full


def test_a_full_disk_is_recognized_behind_another_error() -> None:
    error = RuntimeError("PytorchStreamWriter failed writing file")
    error.__cause__ = FULL
    assert is_disk_full(error)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (copy_error(8), "No space left on device (file-0 and 7 more files)"),
        (copy_error(2), "No space left on device (file-0 and 1 more file)"),
        (copy_error(1), "No space left on device (file-0)"),
        (FULL, "No space left on device (0.pt)"),
        (ValueError("Protocol not known: s9"), "Protocol not known: s9"),
    ],
)
def test_many_files_that_failed_alike_are_one_sentence(error: Exception, expected: str) -> None:
    assert reason(error) == expected


def test_ranks_that_could_not_write_different_files_are_one_failure(tmp_path: Path) -> None:
    other = OSError(errno.ENOSPC, "No space left on device", FULL.filename.replace("0.pt", "1.pt"))
    by_name = [
        describe(one, rank=rank, workspace=tmp_path) for rank, one in enumerate((FULL, other))
    ]
    (failure,) = group(by_name)
    assert failure.ranks == (0, 1)
    assert failure.error == "DiskFull"
    assert "/runs/r1/checkpoints/checkpoint-5" in failure.message
    assert not any(text in failure.message for text in ("0.pt", "1.pt", "Errno"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_at_the_output_is_one_sentence(
    make_config: Callable[..., Any], workspace: Path, tmp_path: Path
) -> None:
    """Files of the output are links to a device on which each write fails: no space is left."""
    from llmops_kernel.train import loop
    from llmops_kernel.train.context import WorkerContext

    target = tmp_path / "results" / "r1"
    target.mkdir(parents=True)
    for name in ("README.md", "adapter_config.json", "tokenizer.json", "config.train.yaml"):
        (target / name).symlink_to("/dev/full")
    context = WorkerContext(run_id="r1", folder=tmp_path / "run", workspace=workspace)
    config = make_config(output=str(tmp_path / "results"), training={"max_steps": 1})
    with pytest.raises(StoreError) as caught:
        loop.train(config, context)
    assert missing(caught.value.message, "output.url", target) == []
    assert str(tmp_path / "run" / "output") in caught.value.remedy
    failure = describe(caught.value, rank=0, workspace=workspace)
    assert "Errno" not in failure.message
