"""Preferences against TRL's trainers; where TRL differs from a paper, against its formula."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from llmops_kernel.models.catalogue import prepare
from llmops_kernel.train.data.examples import IGNORED
from tests.train.objectives.truths import Truth, plain, split, token_log_probs
from tests.train.strategy_pairs import Pairs
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Training = Callable[..., Any]
TOLERANCE = 1e-4
SOME = 10
"""Steps of a plain loop, which reads each sequence alone."""


def assert_like(mine: dict[int, float], theirs: Sequence[float]) -> None:
    assert len(mine) == len(theirs) >= SOME
    worst = max(abs(a - b) for a, b in zip(mine.values(), theirs, strict=True))
    assert worst < TOLERANCE, worst
    assert mine[len(mine)] < mine[1] - 1e-3


def logged(trainer: Any, name: str = "loss") -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def dpo_by_trl(truth: Truth, folder: Path, reference: Any = None, **settings: Any) -> Any:
    import datasets
    from trl import DPOConfig, DPOTrainer

    class Prepared(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            return dataset

    rows = []
    for group in truth.rows:
        (prompt, chosen), (_, rejected) = map(split, group.parts)
        rows.append({"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected})
    trainer = Prepared(
        model=truth.model(),
        ref_model=reference,
        args=DPOConfig(**truth.arguments(folder), **settings),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=truth.tokenizer,
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("loss_type", ["sigmoid", "hinge", "ipo"])
def test_dpo_trains_as_trl(
    training: Training, folder: Path, tmp_path: Path, loss_type: str
) -> None:
    config = training({"type": "dpo", "loss_type": loss_type, "beta": 0.2}, "pairs")
    theirs = dpo_by_trl(Truth(config, folder), tmp_path / "trl", loss_type=[loss_type], beta=0.2)
    events = run(config, tmp_path / "run", folder)
    assert_like(losses(events), logged(theirs))
    figures = {"reward_margin": "rewards/margins", "logp_chosen": "logps/chosen"}
    for mine, name in figures.items():
        values = [event.values[mine] for event in of(events, "step")]
        assert values == pytest.approx(logged(theirs, name), abs=1e-3, rel=1e-3)


def test_dpo_of_all_weights_compares_with_the_model_as_it_was(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    config = training({"type": "dpo"}, "pairs", method="full", optimizer={"learning_rate": 1e-4})
    theirs = dpo_by_trl(Truth(config, folder), tmp_path / "trl", beta=0.1)
    assert_like(losses(run(config, tmp_path / "run", folder)), logged(theirs))


def test_dpo_compares_with_another_model(
    training: Training, pairs: Pairs, folder: Path, tmp_path: Path
) -> None:
    truth = Truth(training({"type": "dpo"}, "pairs", method="full"), folder)
    other = truth.model()
    with torch.no_grad():
        other.lm_head.weight.mul_(1.5)
    truth.tokenizer.save_pretrained(tmp_path / "other")
    other.save_pretrained(tmp_path / "other")
    objective = {"type": "dpo", "reference": {"id": str(tmp_path / "other")}}
    theirs = dpo_by_trl(truth, tmp_path / "trl", other, beta=0.1)
    for strategy in ("fsdp", "zero3"):
        two = {"strategy": strategy, "num_workers": 2}
        halves = {"micro_batch_size": 2}
        config = training(objective, "pairs", method="full", parallelism=two, training=halves)
        events = pairs.events(config, tmp_path / strategy, folder)
        assert_like(losses(events), logged(theirs))


def test_conservative_dpo_by_its_formula(training: Training, folder: Path, tmp_path: Path) -> None:
    config = training(
        {"type": "dpo", "label_smoothing": 0.1}, "pairs", training={"max_steps": SOME}
    )
    truth = Truth(config, folder)

    def loss_of(model: Any, rows: Any) -> torch.Tensor:
        found = []
        for group in rows:
            with torch.no_grad(), model.disable_adapter():
                old = [token_log_probs(model, truth, part).sum() for part in group.parts]
            new = [token_log_probs(model, truth, part).sum() for part in group.parts]
            delta = 0.1 * ((new[0] - old[0]) - (new[1] - old[1]))
            found.append(-0.9 * F.logsigmoid(delta) - 0.1 * F.logsigmoid(-delta))
        return torch.stack(found).mean()

    theirs, _ = plain(truth, loss_of)
    assert_like(losses(run(config, tmp_path / "run", folder)), theirs)


def of_pairs_by_trl(trainer_class: Any, truth: Truth, arguments: Any) -> list[float]:
    """Return the losses of an experimental trainer of TRL over our tokens."""
    import datasets

    class Prepared(trainer_class):  # type: ignore[misc]
        def tokenize_row(self, feature: Any, model: Any = None) -> Any:
            return feature

    rows = []
    for group in truth.rows:
        row: dict[str, Any] = {"prompt": "", "chosen": "", "rejected": ""}
        for side, part in zip(("chosen", "rejected"), group.parts, strict=True):
            row |= {f"{side}_input_ids": part.input_ids, f"{side}_labels": part.labels}
            row[f"{side}_attention_mask"] = [1] * len(part.input_ids)
        rows.append(row)
    trainer = Prepared(
        model=truth.model(),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=truth.tokenizer,
    )
    trainer.train()
    return logged(trainer)


def test_orpo_trains_as_trl_where_a_prompt_is_one_token(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    """TRL imitates prompts as well; of a sequence's first token nobody has a probability."""
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    model = shutil.copytree(prepare("tiny-llama"), folder / "bare", dirs_exist_ok=True)
    answer = "{% if message['role'] == 'assistant' %}<|end|>{% endif %}"
    template = "{% for message in messages %}{{ message['content'] }}" + answer + "{% endfor %}"
    (model / "chat_template.jinja").write_text(template)
    config = training({"type": "orpo", "beta": 0.3}, "short", model="bare")
    truth = Truth(config, folder)
    assert all(part.labels[1] != IGNORED for group in truth.rows for part in group.parts)
    settings = truth.arguments(tmp_path / "trl")
    theirs = of_pairs_by_trl(ORPOTrainer, truth, ORPOConfig(**settings, beta=0.3))
    assert_like(losses(run(config, tmp_path / "run", folder)), theirs)


def test_simpo_trains_as_trl(training: Training, folder: Path, tmp_path: Path) -> None:
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    config = training({"type": "simpo", "beta": 2.5, "gamma": 0.8}, "pairs")
    truth = Truth(config, folder)
    fields = {"loss_type": "simpo", "beta": 2.5, "simpo_gamma": 0.8, "cpo_alpha": 0.0}
    settings = CPOConfig(**truth.arguments(tmp_path / "trl"), **fields)
    theirs = of_pairs_by_trl(CPOTrainer, truth, settings)
    assert_like(losses(run(config, tmp_path / "run", folder)), theirs)


def test_orpo_by_its_paper(training: Training, folder: Path, tmp_path: Path) -> None:
    config = training({"type": "orpo", "beta": 0.3}, "pairs", training={"max_steps": SOME})
    truth = Truth(config, folder)

    def loss_of(model: Any, rows: Any) -> torch.Tensor:
        chosen = [token_log_probs(model, truth, group.parts[0]) for group in rows]
        rejected = [token_log_probs(model, truth, group.parts[1]) for group in rows]
        imitation = -torch.cat(chosen).mean()
        odds = [
            torch.log(p.mean().exp() / (1 - p.mean().exp()))
            - torch.log(q.mean().exp() / (1 - q.mean().exp()))
            for p, q in zip(chosen, rejected, strict=True)
        ]
        return imitation - 0.3 * F.logsigmoid(torch.stack(odds)).mean()

    theirs, _ = plain(truth, loss_of)
    assert_like(losses(run(config, tmp_path / "run", folder)), theirs)


def test_kto_trains_as_trl(training: Training, folder: Path, tmp_path: Path) -> None:
    import datasets
    from trl import KTOConfig, KTOTrainer

    class Prepared(KTOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            return dataset

    weights = {"desirable_weight": 1.2, "undesirable_weight": 0.8}
    config = training({"type": "kto", **weights}, "rated", optimizer={"learning_rate": 3e-3})
    truth, rows, size = Truth(config, folder), [], 4
    for begin in range(0, len(truth.rows), size):
        batch = truth.rows[begin : begin + size]
        # What follows an answer's end is read by nobody: it is part of the other row's answer too.
        answers = [group.input_ids[len(split(group)[0]) :] for group in batch]
        for number, group in enumerate(batch):
            prompt, answer = split(group)
            row = {"prompt_ids": prompt, "completion_ids": answer, "label": group.target > 0}
            rows.append({**row, "KL_completion_ids": answers[number - 1]})
    trainer = Prepared(
        model=truth.model(),
        args=KTOConfig(**truth.arguments(tmp_path / "trl"), **weights, beta=0.1),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=truth.tokenizer,
    )
    trainer.train()
    assert_like(losses(run(config, tmp_path / "run", folder)), logged(trainer))


def test_the_loss_of_a_step_does_not_depend_on_its_micro_batches(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    found = [
        losses(
            run(
                training(
                    {"type": "orpo"},
                    "pairs",
                    training={"micro_batch_size": size, "max_steps": 5},
                ),
                tmp_path / f"{size}",
                folder,
            )
        )
        for size in (1, 4)
    ]
    assert found[0] == pytest.approx(found[1], abs=TOLERANCE)


def test_pairs_are_good_and_bad_answers(training: Training, folder: Path, tmp_path: Path) -> None:
    config = training({"type": "kto"}, "pairs", optimizer={"learning_rate": 3e-3})
    events = run(config, tmp_path / "run", folder)
    values = of(events, "step")[-1].values
    assert values["reward_good"] > values["reward_bad"]
    assert of(events, "start")[-1].num_rows == 82


def test_equal_rewards_prefer_neither(training: Training, folder: Path, tmp_path: Path) -> None:
    config = training(
        {"type": "dpo"},
        "pairs",
        data={"eval": "pairs.jsonl", "max_eval_rows": 9},
        evaluation={"at_start": True},
    )
    first, last = of(run(config, tmp_path / "run", folder), "eval")
    assert "eval_reward_accuracy" not in first.metrics
    assert first.metrics["eval_reward_margin"] == 0
    assert first.metrics["eval_loss"] == pytest.approx(0.693147, abs=1e-5)
    assert 0.5 < last.metrics["eval_reward_accuracy"] <= 1
