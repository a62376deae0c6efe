"""Ray preloaded in a process that is forked from: job ids and random ids are the child's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("ray")

_SET_UP = """
import os, sys
from llmops_kernel.warm import ray_identity
from llmops_kernel.warm.preload import preload

def in_fork(function):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, function().encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    return os.fdopen(reading).read()
"""
_DRAW = """
report = preload(["ray", "ray.train.torch"])
assert report["missing"] == {}, report
from ray import ActorClassID, UniqueID
import ray.actor
assert ray.actor.ActorClassID is ActorClassID
print(len({in_fork(lambda: UniqueID.from_random().hex()) for _ in range(5)}))
"""
_USED = """
ray_identity.load()
sys.modules["ray._raylet"].UniqueID.from_random()
try:
    ray_identity.loaded()
except ray_identity.NotFoundError as error:
    print(error)
"""
# The core has no function that tells the job id, so its memory is read back.
_IDENTITY = """
import ctypes
ray_identity.load()

def told(env):
    ray_identity.set_identity(env)
    heads = ray_identity._HEAD
    found = []
    for place in ray_identity._places.values():
        length, _, _ = heads.unpack(ctypes.string_at(place, heads.size))
        found.append(ctypes.string_at(place + heads.size, length).decode())
    return " ".join(found)

print(in_fork(lambda: told({"RAY_JOB_ID": "0a000000", "RAY_RAYLET_PID": "4194304"})))
print(in_fork(lambda: told({"RAY_JOB_ID": "0b000000"})))
print(repr(told({})))
try:
    ray_identity.set_identity({"RAY_JOB_ID": "x" * 99})
except ray_identity.NotFoundError as error:
    print(error)
"""


def said_by(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _SET_UP + code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_forks_draw_ids_of_their_own() -> None:
    assert said_by(_DRAW) == ["5"]


def test_a_used_generator_is_noticed() -> None:
    assert said_by(_USED) == ["a preloaded module used Ray's generator of random ids"]


def test_a_child_takes_its_job_and_its_raylet() -> None:
    assert said_by(_IDENTITY) == [
        "0a000000 4194304",
        "0b000000 ",
        "' '",
        "RAY_JOB_ID has 99 characters, more than 24",
    ]
