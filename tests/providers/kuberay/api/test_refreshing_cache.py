"""Answers are kept for long, refusals for a moment."""

from __future__ import annotations

import time

from llmops_kernel.providers.kuberay.api.refreshing_cache import RefreshingCache


def test_a_refusal_is_asked_about_again_and_an_answer_is_not() -> None:
    answers = [False, False, True]
    asked: list[bool] = []

    def ask() -> bool:
        asked.append(answers[min(len(asked), 2)])
        return asked[-1]

    kept: RefreshingCache[bool] = RefreshingCache(
        refresh_after_s=600.0, patience_s=5.0, stale_s=3600.0, is_doubtful=lambda it: not it
    )
    deadline_s = time.monotonic() + 60.0
    assert kept.get("one", ask) is False
    while not kept.get("one", ask):
        assert time.monotonic() < deadline_s, "it was never asked again"
        time.sleep(0.05)
    for _ in range(3):
        assert kept.get("one", ask) is True
    assert len(asked) == 3
