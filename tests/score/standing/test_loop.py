"""Many callers share one engine."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from llmops_kernel.errors import ModelError
from llmops_kernel.score.engine_loop import EngineLoop
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, Job
from tests.score.instant import InstantEngine
from tests.waiting import until


def _loop(broken: list[BaseException] | None = None, **options: object) -> EngineLoop:
    spec = EngineSpec(type="x", model="m", batch_size=4, options=options)
    found = broken if broken is not None else []
    return EngineLoop(lambda: InstantEngine(spec), broken=found.append)


def test_each_caller_gets_its_own_answers_in_order() -> None:
    loop = _loop()
    with ThreadPoolExecutor(8) as pool:
        prompts = [[f"caller {c} prompt {n}" for n in range(25)] for c in range(8)]
        found = list(pool.map(lambda mine: loop.generate(Job(), mine), prompts))
    assert [[answer.text for answer in answers] for answers in found] == prompts
    assert [answer.id for answer in found[0]] == list(range(25))
    assert loop.requests == 200
    loop.close()


class ThreadEngine(InstantEngine):
    """Remembers the threads that loaded it and made its steps."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.threads = {threading.get_ident()}

    def step(self) -> list[Answer]:
        self.threads.add(threading.get_ident())
        return super().step()


def test_one_thread_loads_the_engine_and_makes_its_steps() -> None:
    loop = EngineLoop(lambda: ThreadEngine(EngineSpec(type="x", model="m")), broken=print)
    loop.generate(Job(), ["one"])
    assert isinstance(loop.engine, ThreadEngine)
    assert len(loop.engine.threads) == 1
    assert threading.get_ident() not in loop.engine.threads
    loop.close()


def test_an_engine_that_cannot_load_raises_where_it_was_asked_for() -> None:
    def load() -> InstantEngine:
        raise ModelError("m does not fit", remedy="use a smaller one")

    broken: list[BaseException] = []
    with pytest.raises(ModelError, match="does not fit"):
        EngineLoop(load, broken=broken.append)
    assert broken == []


def test_no_prompts_are_answered_at_once() -> None:
    loop = _loop()
    assert loop.generate(Job(), []) == []
    loop.close()


def test_a_failing_prompt_does_not_touch_the_others() -> None:
    loop = _loop()
    good, bad = loop.generate(Job(), ["good", "[fail]"])
    assert (good.error, bad.finish) == ("", "error")
    loop.close()


def test_a_stream_grows_and_ends_with_the_final_answer() -> None:
    loop = _loop()
    parts = list(loop.stream(Job(stream=True), "one two three"))
    assert [part.text for part in parts] == ["one", "one two", "one two three"]
    assert [part.is_final for part in parts] == [False, False, True]
    loop.close()


def test_a_stream_that_is_left_is_cancelled() -> None:
    loop = _loop()
    stream = loop.stream(Job(stream=True), "one two three [hang]")
    threading.Timer(0.2, loop.close).start()
    stream.close()
    deadline_s = time.monotonic() + 60
    while loop.engine.unfinished and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert loop.engine.unfinished == 0


def test_a_broken_engine_is_reported_once() -> None:
    broken: list[BaseException] = []
    loop = _loop(broken)
    threading.Thread(target=loop.generate, args=(Job(), ["[break]"]), daemon=True).start()
    deadline_s = time.monotonic() + 60
    while not broken and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert "is broken" in str(broken[0])


def test_calls_of_a_caller_that_left_are_dropped_and_others_are_not() -> None:
    """A run that was stopped has sent up to 2,048 rows, which kept the engine busy."""
    loop = _loop()
    with ThreadPoolExecutor(3) as pool:
        leaves = pool.submit(loop.generate, Job(), ["a", "[hang]"], caller="stopped")
        stays = pool.submit(loop.generate, Job(), ["b", "[hang]"], caller="goes on")
        until(lambda: loop.engine.stats().running == 2)
        loop.drop("stopped")
        assert [answer.text for answer in leaves.result(10)] == ["a"]
        until(lambda: loop.engine.unfinished == 1)
        # Sent before the stop, arrived after it.
        assert loop.generate(Job(), ["c"], caller="stopped") == []
        assert loop.generate(Job(), ["d"])[0].text == "d"
        assert not stays.done()
        assert loop.idle_s == 0
        loop.drop("goes on")
        assert len(stays.result(10)) == 1
        until(lambda: loop.idle_s > 0)
    assert loop.engine.unfinished == 0
    loop.close()


def test_it_is_idle_only_without_work() -> None:
    loop = _loop(step_s=0.2)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(loop.generate, Job(), ["a"] * 8)
        time.sleep(0.1)
        assert loop.idle_s == 0
        call.result()
    time.sleep(0.05)
    assert loop.idle_s == pytest.approx(0.05, abs=0.5)
    assert loop.idle_s > 0
    loop.close()


def test_answers_of_a_call_that_is_not_finished_are_counted_by_caller() -> None:
    """A call has up to 512 rows: with long answers its first rows are there minutes before."""
    loop = _loop()
    with ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(loop.generate, Job(), ["one two", "three", "[hang]"], caller="run a"),
            pool.submit(loop.generate, Job(), ["[hang]", "four"], caller="run b"),
        ]
        until(lambda: loop.engine.stats().running == 2 and loop.requests == 3)
        assert loop.facts()["under_way"] == {"run a": [2, 3, 3], "run b": [1, 1, 1]}
        loop.drop("run a")
        loop.drop("run b")
        assert [len(call.result(10)) for call in calls] == [2, 1]
    assert loop.facts()["under_way"] == {}
    loop.close()
