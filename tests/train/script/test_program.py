"""What a script's text and its failures say."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.driver.ray_job import add_metadata
from llmops_kernel.store.record import JOB_CONFIG_ENV_VAR
from llmops_kernel.train.script.program import describe_failure


class WorkerError(Exception):
    """As Ray wraps a worker's exception: text, and the exception itself as `cause`."""

    def __init__(self, cause: BaseException, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class GroupError(Exception):
    def __init__(self, failures: dict[int, BaseException]) -> None:
        super().__init__("worker group failed")
        self.worker_failures = failures


REMOTE = """ray::train() (pid=1)
  File "/tmp/s/runtime_resources/working_dir_files/_ray_pkg_0a1b/parts/train.py", line 7, in loop
    raise ValueError("no rows")
  File "/opt/site-packages/torch/nn.py", line 1, in call
ValueError: no rows"""


def test_the_users_line_in_a_worker_of_ray_train(tmp_path: Path) -> None:
    error = GroupError({1: WorkerError(ValueError("no rows"), REMOTE)})
    # The wrapped exception has lost its frames on the way; the printed traceback has them.
    error.__cause__ = error.worker_failures[1]
    failure = describe_failure(error, workspace=tmp_path)
    assert failure.message == "ValueError: no rows"
    assert (failure.file, failure.line) == ("parts/train.py", 7)


def test_metadata_is_added_to_what_ray_says_of_its_job() -> None:
    env = {JOB_CONFIG_ENV_VAR: '{"runtime_env": {"working_dir": "x"}, "metadata": {"a": "1"}}'}
    add_metadata("b", "2", env=env)
    assert env[JOB_CONFIG_ENV_VAR] == (
        '{"runtime_env": {"working_dir": "x"}, "metadata": {"a": "1", "b": "2"}}'
    )
