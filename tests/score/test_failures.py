"""A run in which no row can be scored does not end as if all were well."""

from __future__ import annotations

import pytest

from llmops_kernel.errors import RunError
from llmops_kernel.score.failures import Refusals, check_some_scored, counted, refusal
from llmops_kernel.score.ledger import PartResult

BASE = "the adapter /a is of another base model (b), not of /m: its lora_A is 9 wide, not 8"
LONG = "the prompt has {n:,} tokens; the engine's context (engine.max_model_len) is 4,096"


def part(errors: list[str], *, asked: int | None = None) -> PartResult:
    """A part with these errors of its rows; empty: the row is scored."""
    refused = refusal(errors[: len(errors) if asked is None else asked])
    failed = [error for error in errors if error]
    return PartResult(0, len(errors), len(failed), 1, 1, 1, 0.1, {}, counted(failed), refused)


def test_the_commonest_error_is_named_whatever_its_numbers() -> None:
    errors = [LONG.format(n=5000 + n) for n in range(60)] + [f"no column a{n}" for n in "xy"] * 25
    with pytest.raises(RunError, match="None of the 110 rows could be scored, 60 of them") as found:
        check_some_scored([part(errors[:50]), part(errors[50:])], output="/out")
    assert "5,000 tokens" in found.value.message
    assert found.value.remedy.startswith("raise engine.max_model_len")
    assert "/out" in found.value.remedy


def test_one_scored_row_is_enough() -> None:
    check_some_scored([part([BASE] * 9), part(["", BASE])], output="/out")


def test_what_the_engine_proposes_is_the_remedy() -> None:
    with pytest.raises(RunError) as found:
        check_some_scored([part(["NaN; Try: model.dtype float32"] * 3)], output="/out")
    assert found.value.message.endswith("all because: NaN")
    assert found.value.remedy.startswith("model.dtype float32")


def test_only_the_most_frequent_errors_are_kept() -> None:
    assert counted(["a"] * 3 + ["b"] * 5 + list("cdefgh")) == {
        "b": 5, "a": 3, "c": 1, "d": 1, "e": 1
    }  # fmt: skip


def test_a_run_ends_when_the_first_rows_are_all_refused() -> None:
    refusals = Refusals(output="/out")
    refusals.take(part([BASE] * 150))
    with pytest.raises(RunError, match=r"None of the first 300 rows.*another base model") as found:
        refusals.take(part([BASE] * 150))
    assert found.value.remedy.startswith("name an adapter of this model")


def test_rows_that_were_not_asked_say_nothing_of_the_engine() -> None:
    refusals = Refusals(output="/out")
    refusals.take(part(["the prompt is empty"] * 500, asked=0))
    with pytest.raises(RunError, match="first 1,000 rows"):
        refusals.take(part([BASE] * 499 + ["not JSON"], asked=499))


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(["", *[BASE] * 99], id="one is scored"),
        pytest.param(["another reason"] * 100, id="another reason"),
    ],
)
def test_a_run_goes_on(first: list[str]) -> None:
    refusals = Refusals(output="/out")
    refusals.take(part(first))
    for _ in range(5):
        refusals.take(part([BASE] * 100))


def test_prompts_of_different_lengths_may_be_followed_by_shorter_ones() -> None:
    refusals = Refusals(output="/out")
    for _ in range(5):
        refusals.take(part([LONG.format(n=5000 + n) for n in range(100)]))
