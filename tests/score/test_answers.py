"""Rows under way when an engine's process is killed get their answers from the next one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

KILLED = """
import os, time
import ray
from llmops_kernel.score.scorer import AnswerSource, CancelledError
from llmops_kernel.score.engines.protocol import Answer, Job

@ray.remote(max_concurrency=8)
class Engine:
    def __init__(self, *, dies):
        self.dies = dies

    def facts(self):
        return {}

    def generate(self, job, prompts, targets, rows, *, caller):
        if self.dies:
            os._exit(1)
        return [Answer(id=n, text=prompt) for n, prompt in enumerate(prompts)]

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
first, second, back_s = Engine.remote(dies=True), Engine.remote(dies=False), []

def find():
    # Of an engine that Ray starts again: calls fail at once until its new process is there.
    if len(back_s) < 2:
        back_s.append(time.monotonic() + 5)
        return first
    return first if time.monotonic() < back_s[-1] else second

prompts = [f"row {n}" for n in range(20)]
answers = AnswerSource(find, chunk_rows=3).answers(Job(), prompts)

begin_s = time.monotonic()
source = AnswerSource(
    lambda: first, chunk_rows=3, is_cancelled=lambda: time.monotonic() > begin_s + 2
)
try:
    source.answers(Job(), prompts)
except CancelledError:
    print("cancelled", time.monotonic() - begin_s < 20)
print([answer.id for answer in answers] == list(range(20)))
print([answer.text for answer in answers] == prompts, [a.error for a in answers if a.error])
"""


def test_rows_are_not_blamed_for_an_engine_that_takes_long_to_come_back() -> None:
    command = [sys.executable, "-c", KILLED]
    env = {**os.environ, "RAY_raylet_start_wait_time_s": "120"}  # Ray's own limit is 30 s.
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert ended.stdout.splitlines()[-3:] == ["cancelled True", "True", "True []"], (
        ended.stdout + ended.stderr
    )
