"""Who waits for an engine, and for whom it works no more."""

from __future__ import annotations

from llmops_kernel.score.engine_actor import UNASKED_S, Callers


def test_an_engine_is_given_up_only_where_nobody_else_waits_for_it() -> None:
    callers = Callers()
    assert not callers.anybody_waits()
    with callers.waits("a"), callers.waits("a"):
        assert callers.anybody_waits()
        assert not callers.anybody_waits(but="a")
        with callers.waits("b"):
            assert callers.anybody_waits(but="a")
        assert not callers.anybody_waits(but="a")
        with callers.waits(""):  # A chat's answer.
            assert callers.anybody_waits(but="a")
    assert not callers.anybody_waits()


def test_one_that_nobody_has_asked_does_not_stay_long() -> None:
    callers = Callers()
    assert callers.stay_s(900) == UNASKED_S
    assert callers.stay_s(1) == 1
    with callers.waits("a"):
        pass
    assert callers.stay_s(900) == 900


def test_what_is_dropped_before_the_engine_is_loaded_stays_dropped() -> None:
    callers = Callers()
    callers.drop("stopped")
    assert callers.is_dropped("stopped")
    assert not callers.is_dropped("goes on")
