"""Rewards against TRL, labels and numbers against plain Transformers, F1 against scikit-learn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.errors import DataError
from llmops_kernel.metrics.predictions import f1_scores
from tests.train.objectives.test_preferences import assert_like, logged
from tests.train.objectives.truths import Truth, padded, plain
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Training = Callable[..., Any]


def test_a_reward_trains_as_trl(training: Training, folder: Path, tmp_path: Path) -> None:
    import datasets
    from trl import RewardConfig, RewardTrainer

    config = training(
        {"type": "reward", "center_rewards_coefficient": 0.01},
        "pairs",
        data={"eval": "pairs.jsonl", "max_eval_rows": 9},
    )
    truth = Truth(config, folder)
    rows = []
    for group in truth.rows:
        chosen, rejected = (part.input_ids for part in group.parts)
        rows.append({"chosen_ids": chosen, "rejected_ids": rejected})
    trainer = RewardTrainer(
        model=truth.model(),
        args=RewardConfig(
            **{**truth.arguments(tmp_path / "trl"), "center_rewards_coefficient": 0.01}
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=truth.tokenizer,
    )
    trainer.train()
    events = run(config, tmp_path / "run", folder)
    assert_like(losses(events), logged(trainer))
    margins = [event.values["reward_margin"] for event in of(events, "step")]
    assert margins == pytest.approx(logged(trainer, "margin"), abs=1e-3)
    assert of(events, "eval")[-1].metrics["eval_reward_accuracy"] > 0.5


OF_LABELS = {
    "one": ({"type": "classify"}, "labels"),
    "several": ({"type": "classify", "multi_label": True}, "several"),
    "numbers": ({"type": "regress"}, "numbers"),
}


@pytest.mark.parametrize("kind", OF_LABELS)
@pytest.mark.parametrize("method", ["lora", "full"])
def test_labels_are_trained_as_transformers_does(
    training: Training, folder: Path, tmp_path: Path, kind: str, method: str
) -> None:
    objective, rows = OF_LABELS[kind]
    config = training(objective, rows, method=method)
    truth = Truth(config, folder)

    def loss_of(model: Any, groups: Any) -> torch.Tensor:
        batch = padded([group.parts[0] for group in groups], truth.tokenizer.pad_token_id)
        labels = torch.tensor([truth.objective.target(group) for group in groups])
        loss: torch.Tensor = model(**batch, labels=labels).loss
        return loss

    theirs, gradients = plain(truth, loss_of)
    events = run(config, tmp_path / "run", folder)
    assert_like(losses(events), theirs)
    assert any("score" in name for name in gradients)
    norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    assert of(events, "step")[0].grad_norm == pytest.approx(float(norm), rel=1e-3)


def test_a_classifier_is_read_by_transformers(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    config = training(
        {"type": "classify"},
        "labels",
        method="full",
        data={"eval": "labels.jsonl", "max_eval_rows": 40},
    )
    metrics = of(run(config, tmp_path / "run", folder), "eval")[-1].metrics
    output = tmp_path / "run" / "output"
    model = AutoModelForSequenceClassification.from_pretrained(output).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(output)
    names = list(json.loads((output / "head.json").read_text())["label2id"])
    assert [model.config.id2label[n] for n in range(len(names))] == names == sorted(names)
    rows = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()[:40]]
    answers = []
    for row in rows:
        with torch.no_grad():
            logits = model(**tokenizer(row["text"], return_tensors="pt")).logits
        answers.append(names[int(logits.argmax())])
    given = [row["label"] for row in rows]
    _assert_f1(metrics, given, answers, names)


def _assert_f1(
    metrics: dict[str, float], given: list[str], answers: list[str], names: list[str]
) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    each = f1_score(given, answers, labels=names, average=None, zero_division=0)
    assert metrics["eval_accuracy"] == pytest.approx(accuracy_score(given, answers))
    assert metrics["eval_macro_f1"] == pytest.approx(each.mean())
    assert [metrics[f"eval_f1_{name}"] for name in names] == pytest.approx(list(each))


def test_f1_of_several_labels_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    answers = [([1, 0, 1], [1, 1, 0]), ([0, 0, 0], [0, 0, 0]), ([1, 0, 0], [1, 0, 0])]
    expected = f1_score(
        [target for _, target in answers],
        [answer for answer, _ in answers],
        average=None,
        zero_division=0,
    )
    pairs = [
        tuple({n for n, is_one in enumerate(row) if is_one} for row in both) for both in answers
    ]
    assert f1_scores(pairs, range(3)) == pytest.approx(list(expected))  # type: ignore[arg-type]


BROKEN = {
    "only the label salt": ({"labels": ["salt"]}, "labels"),
    "Row [0-9]+ has the label .*, which objective.labels does not name": (
        {"labels": ["salt", "sugar"]},
        "labels",
    ),
    "Row 1 has 3 labels": ({}, "several"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_labels_that_nobody_has_are_found_before_the_run(
    training: Training, folder: Path, tmp_path: Path, case: str
) -> None:
    fields, rows = BROKEN[case]
    config = training({"type": "classify", **fields}, rows)
    with pytest.raises(DataError, match=case):
        run(config, tmp_path / "run", folder)
