"""Each fact says of how many rows it is."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.store.preview_job import DataPreview, Leaks
from llmops_kernel.views.preview_facts import facts
from tests.views.data_preview.found import epoch, preview, report


def texts(found: DataPreview) -> dict[str, str]:
    return {one.label: one.text for one in facts(found)}


def warnings(found: DataPreview) -> set[str]:
    return {one.label for one in facts(found) if one.level == "warning"}


def test_a_sound_data_set_has_no_warnings() -> None:
    found = preview()
    assert warnings(found) == set()
    assert texts(found) == {
        "rows": "84 rows of data/train.jsonl",
        "format": "chat, chosen by format: auto",
        "tokens a row": "3 to 20, median 12, mean 11.5",
        "cut": "none of 84 rows is longer than max_length=16",
        "loss": "25.0 % of the tokens count for the loss",
        "no loss": "each of 84 rows has tokens that count for the loss",
        "duplicates": "none among 84 rows",
        "padding": "25.0 % (on GPUs 50.0 %: widths are multiples of 8) in micro batches of 4 rows",
        "epoch": "11 steps, 900 tokens; 8 rows a step: 4 rows x 2 workers x 1 accumulation step",
        "run": "22 steps, 2.00 epochs",
        "evaluation": "84 rows of data/eval.jsonl",
        "leaks": "none of 84 rows of evaluation is among 84 rows of training",
    }


def test_what_is_wrong_is_a_warning_with_share_and_rows() -> None:
    train = report(
        num_cut=21,
        num_masked=2,
        masked=[3, 1700],
        num_duplicates=3,
        duplicates=[[1, 9], [4, 5, 6]],
    )
    found = preview(train=train, leaks=Leaks(rows=1, of=84, pairs=[(2, 7)]))
    shown = texts(found)
    assert warnings(found) == {"cut", "no loss", "duplicates", "leaks"}
    assert shown["cut"] == "21 of 84 rows (25.0 %) are longer than max_length=16 and are truncated"
    assert shown["no loss"].endswith("are skipped: row 3, 1,700")
    assert (
        shown["duplicates"] == "3 of 84 rows (3.57 %) repeat another one: rows 1, 9; rows 4, 5, 6"
    )
    assert shown["leaks"].endswith("are among 84 rows of training: row 2 is training row 7")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_rows": 20, "where": "from all over the file"}, "20 of 84 rows"),
        ({"num_rows": 20, "total_rows": 1_200_000}, "20 of 1,200,000 rows"),
        (
            {"num_rows": 20, "total_rows": 1_234_567, "is_estimate": True},
            "20 of about 1.23 M rows",
        ),
        ({"num_rows": 20, "total_rows": None}, "the first 20 rows"),
    ],
)
def test_figures_of_a_sample_say_so(changes: dict[str, Any], words: str) -> None:
    shown = texts(preview(train=report(**changes, num_cut=5), epoch=epoch(is_estimate=True)))
    for label in ("rows", "tokens a row", "cut", "loss", "no loss"):
        assert words in shown[label], label
    assert shown["padding"].startswith("about 25.0 %")
    assert shown["epoch"].startswith("about 11 steps")
    assert shown["run"] == "about 22 steps, 2.00 epochs"
    given = epoch(is_estimate=True, has_max_steps=True)
    assert texts(preview(epoch=given))["run"] == "22 steps, about 2.00 epochs"


def test_unknown_numbers_are_dashes() -> None:
    unknown = epoch(sequences=None, steps=None, tokens=None, run_steps=None, padding_cpu=None)
    shown = texts(preview(epoch=unknown.model_copy(update={"padding_gpu": None})))
    assert shown["epoch"].startswith("– (the number of rows")
    assert shown["run"] == "– steps"
    assert shown["padding"].startswith("– in micro batches")


def test_faults_of_the_evaluation_rows_are_facts_of_their_own() -> None:
    found = preview(eval=report(num_cut=1))
    assert warnings(found) == {"evaluation, cut"}
    assert texts(preview(eval=None, leaks=None))["evaluation"] == "no evaluation rows"


def test_the_format_says_who_chose_it() -> None:
    mixed = report(formats={"chat": 83, "text": 1})
    assert texts(preview(train=mixed))["format"] == (
        "chat (83 rows), text (1 row), chosen by format: auto"
    )
    assert texts(preview(format="chat", has_hook=True))["format"] == "chat, made by format_example"
