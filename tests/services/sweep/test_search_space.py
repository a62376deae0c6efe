"""Values of fields become trials; what cannot be tried is named."""

from __future__ import annotations

import itertools
import math
import statistics
import sys

import pytest

from llmops_kernel.errors import ConfigError, MissingDependencyError
from llmops_kernel.services.search_space import (
    MOST_TRIALS,
    Proposals,
    Search,
    axes_of_words,
    drawn,
    grid,
    words_of,
)


def test_a_grid_has_every_combination_once():
    trials = grid(axes_of_words(["optimizer.learning_rate=1e-4, 3e-4", "method.r=8,16,32"]))
    assert trials == [
        {"optimizer.learning_rate": rate, "method.r": r}
        for rate, r in itertools.product(["1e-4", "3e-4"], ["8", "16", "32"])
    ]
    assert grid(axes_of_words(["method.r=8"])) == [{"method.r": "8"}]


def test_commas_in_lists_and_quotes_separate_nothing():
    axes = axes_of_words(["method.target_modules=[q,v],[q,k,v]", "data.train='a,b.jsonl',c.jsonl"])
    assert axes[0].values == ("[q,v]", "[q,k,v]")
    assert axes[1].values == ("'a,b.jsonl'", "c.jsonl")


def test_python_values_become_what_a_config_reads():
    over = {"a.b": [1e-5, True, "x", None], "c": "1..3", "d": 4, "e": [["q", "v"]]}
    axes = axes_of_words(words_of(over))
    assert axes[0].values == ("1e-05", "true", '"x"', "null")
    assert (axes[1].low, axes[1].high, axes[1].is_whole) == (1, 3, True)
    assert axes[2].values == ("4",)
    assert axes[3].values == ('["q", "v"]',)


def test_random_trials_are_within_their_ranges_and_repeat_with_the_seed():
    axes = axes_of_words(["lr=1e-5..1e-1:log", "r=4..64", "p=0.0..0.5", "kind=a,b"])
    trials = drawn(axes, 200, seed=3)
    assert trials == drawn(axes, 200, seed=3)
    assert trials != drawn(axes, 200, seed=4)
    assert len({tuple(trial.values()) for trial in trials}) == 200
    rates = [float(trial["lr"]) for trial in trials]
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    # Log-uniform: half of them lie below the geometric middle, where a uniform draw has 1 %.
    assert 0.35 < sum(rate < math.sqrt(1e-5 * 1e-1) for rate in rates) / 200 < 0.65
    sizes = {int(trial["r"]) for trial in trials}
    assert min(sizes) >= 4
    assert max(sizes) <= 64
    assert {trial["kind"] for trial in trials} == {"a", "b"}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["method.r"], "no field"),
        (["=8"], "no field"),
        (["method.r="], "no value"),
        (["method.r=8,,16"], "empty value"),
        (["method.r=8,16,8"], "twice"),
        (["method.r=8", "method.r=16"], "twice"),
        (["lr=1e-5.."], "without a bound"),
        (["lr=..1e-3"], "without a bound"),
        (["lr=1e-3..1e-5"], "high to low"),
        (["lr=0..1:log"], "logarithm"),
        (["lr=-1..x"], "without a bound"),
    ],
)
def test_what_is_wrong_is_named(words, part):
    with pytest.raises(ConfigError, match=part):
        axes_of_words(words)


def test_all_mistakes_come_at_once():
    with pytest.raises(ConfigError) as raised:
        axes_of_words(["method.r=8,8", "lr=1e-5..", "x"])
    assert len(raised.value.problems) == 3


def test_a_grid_has_no_range_and_neither_none_nor_thousands_of_trials():
    with pytest.raises(ConfigError, match="range"):
        grid(axes_of_words(["lr=1e-5..1e-3"]))
    with pytest.raises(ConfigError, match="nothing to try"):
        grid(())
    with pytest.raises(ConfigError, match="nothing to try"):
        drawn((), 3, seed=0)
    many = ",".join(map(str, range(40)))
    with pytest.raises(ConfigError, match="1,600"):
        grid(axes_of_words([f"a={many}", f"b={many}"]))
    with pytest.raises(ConfigError, match="only 2"):
        drawn(axes_of_words(["r=8,16"]), 3, seed=0)
    assert MOST_TRIALS == 1_000


def loss_of(trial: dict[str, str]) -> float:
    """Return a loss that is lowest, 0, at a rate of 1e-3 and kind b."""
    return abs(math.log10(float(trial["lr"])) + 3) + (0.5 if trial["kind"] == "a" else 0.0)


def test_optuna_learns_from_trials_also_from_those_of_an_earlier_process():
    search = Search(("lr=1e-6..1e-0:log", "kind=a,b"), optuna=40, seed=1)
    first = Proposals(search, better="lower", num_known=0)
    trials = []
    for _ in range(20):
        trials.append(first.propose())
        first.learn(trials[-1], state="SUCCEEDED", value=loss_of(trials[-1]))
    again = Proposals(search, better="lower", num_known=len(trials))
    for trial in trials:
        again.learn(trial, state="SUCCEEDED", value=loss_of(trial))
    later = []
    for _ in range(20):
        later.append(again.propose())
        again.learn(later[-1], state="SUCCEEDED", value=loss_of(later[-1]))
    keys = [tuple(trial.values()) for trial in [*trials, *later]]
    assert len(set(keys)) == len(keys)
    assert statistics.median(map(loss_of, later)) < statistics.median(map(loss_of, trials))


def test_optuna_ends_where_nothing_new_is_left_and_takes_no_failed_trial_for_good():
    study = Proposals(Search(("r=4,8",), optuna=9), better="higher", num_known=0)
    study.learn({"r": "4"}, state="FAILED", value=9.0)
    trial = study.propose()
    assert trial == {"r": "8"}
    study.learn(trial, state="SUCCEEDED", value=None)
    assert study.propose() is None


def test_optuna_stops_what_is_worse_than_the_median_at_the_same_step():
    study = Proposals(Search(("lr=0.0..1.0",), optuna=20), better="lower", num_known=0)
    for number in range(6):
        good = study.propose()
        curve = [(step, 1.0 - number / 100) for step in range(5)]
        assert not study.should_stop(good, curve)
        study.learn(good, state="SUCCEEDED", value=1.0)
    bad = study.propose()
    assert study.should_stop(bad, [(0, 9.5), (1, 9.0)])
    assert not study.should_stop(bad, [(0, 9.5), (1, 9.0)])
    better = study.propose()
    assert not study.should_stop(better, [(0, 0.5), (1, math.nan), (2, 0.4)])


def test_without_optuna_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)  # As if it were not installed.
    with pytest.raises(MissingDependencyError, match="optuna"):
        Search(("r=4,8",), optuna=3).trials()
