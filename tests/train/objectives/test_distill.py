"""Distillation against its formula, computed on whole distributions in plain PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.models.catalogue import prepare
from llmops_kernel.score.engines.protocol import EngineSpec, Job, Request, load_engine
from llmops_kernel.score.output_table import ScoredRow, columns_of, part_table
from llmops_kernel.score.sink import Sink
from llmops_kernel.tables.parts import TableRow
from llmops_kernel.train.data.collate import Collator
from llmops_kernel.train.objectives.distill import divergence
from llmops_kernel.train.objectives.objective import GroupCollator
from tests.train.objectives.conftest import taught
from tests.train.objectives.test_preferences import assert_like
from tests.train.objectives.truths import Truth, plain
from tests.train.test_loop import losses, of, run

Training = Callable[..., Any]


def rows_of(folder: Path, name: str = "taught") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def token_losses(model: Any, row: dict[str, Any], settings: Any) -> torch.Tensor:
    """Return the loss of each token of an answer, read alone: from probabilities, not logits."""
    target, top = torch.tensor(row["target_tokens"]), row["top_logprobs"]
    logits = model(input_ids=torch.tensor([row["ids"]])).logits[0, -len(target) - 1 : -1]
    student, ids = logits.double().softmax(-1), torch.tensor(top["token_ids"])
    teacher = torch.tensor(top["logprobs"]).double().exp()
    others = student.scatter(-1, ids, 0.0).sum(-1, keepdim=True)
    mine = torch.cat([student.gather(-1, ids), others], -1)
    theirs = torch.cat([teacher, (1 - teacher.sum(-1, keepdim=True)).clamp(min=1e-7)], -1)
    mine, theirs = (p ** (1 / settings.temperature) for p in (mine, theirs))
    mine, theirs = (p / p.sum(-1, keepdim=True) for p in (mine, theirs))
    pair = (mine.log(), theirs) if settings.divergence == "forward" else (theirs.log(), mine)
    soft = F.kl_div(*pair, reduction="none").sum(-1) * settings.temperature**2
    hard = F.cross_entropy(logits, target, reduction="none")
    return settings.hard_weight * hard + (1 - settings.hard_weight) * soft


def by_formula(truth: Truth, folder: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    rows = rows_of(folder)

    def loss_of(model: Any, groups: Sequence[Any]) -> torch.Tensor:
        of_rows = [
            token_losses(
                model,
                {**rows[group.number - 1], "ids": group.input_ids},
                truth.config.objective,
            )
            for group in groups
        ]
        return torch.cat(of_rows).mean()

    return plain(truth, loss_of)


SETTINGS: dict[str, dict[str, Any]] = {
    "forward": {},
    "reverse": {"divergence": "reverse"},
    "both, softened": {"hard_weight": 0.5, "temperature": 2.0},
}


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.parametrize("name", SETTINGS)
def test_it_trains_as_its_formula(
    training: Training, folder: Path, tmp_path: Path, name: str
) -> None:
    config = training(
        {"type": "distill", **SETTINGS[name]},
        "taught",
        data={"eval": "taught.jsonl", "max_eval_rows": 9},
        method="full",
        training={"max_steps": 10 if "softened" in name else 20},
    )
    truth = Truth(config, folder)
    theirs, gradients = by_formula(truth, folder)
    events = run(config, tmp_path / "run", folder)
    assert_like(losses(events), theirs)
    (first, *_) = of(events, "step")
    norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    assert first.grad_norm == pytest.approx(float(norm), rel=1e-3)
    assert set(first.values) >= {"kl", "teacher_agreement", "hard_loss"}
    metrics = of(events, "eval")[-1].metrics
    assert 0 <= metrics["eval_teacher_agreement"] <= 1
    if name == "forward":
        assert metrics["eval_loss"] == pytest.approx(metrics["eval_kl"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.parametrize("label_logits", [True, False])
def test_the_gradient_of_each_weight_is_that_of_the_formula(
    training: Training, folder: Path, *, label_logits: bool
) -> None:
    config = training({"type": "distill", "hard_weight": 0.3}, "taught", training={"max_steps": 1})
    truth = Truth(config, folder)
    _, expected = by_formula(truth, folder)
    model = truth.model().train()
    sequences = Collator(pad_token_id=truth.tokenizer.pad_token_id, label_logits=label_logits)
    batch = GroupCollator(truth.objective, sequences)(truth.rows[:4])
    (truth.objective.terms(model, batch) / truth.objective.counts(batch)).sum().backward()
    actual = {name: weight.grad for name, weight in model.named_parameters() if name in expected}
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.beside
def test_with_all_weight_on_the_answers_it_is_imitation(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    some = {"max_steps": 10}
    distilled, imitated = (
        losses(run(training(objective, "taught", training=some), tmp_path / str(number), folder))
        for number, objective in enumerate(({"type": "distill", "hard_weight": 1.0}, {}))
    )
    assert len(distilled) == len(imitated) == 10
    assert list(distilled.values()) == pytest.approx(list(imitated.values()), abs=1e-4)


def test_with_the_whole_vocabulary_it_is_the_divergence_of_whole_distributions(
    training: Training, folder: Path
) -> None:
    truth = Truth(training({"type": "distill"}, "taught", method="full"), folder)
    model = truth.model().eval()
    size = model.config.vocab_size
    with (folder / "whole.jsonl").open("w") as file:
        for _, row in zip(range(3), taught(size), strict=False):
            file.write(json.dumps(row) + "\n")
    whole = Truth(training({"type": "distill"}, "whole", method="full"), folder)
    batch = GroupCollator(whole.objective, Collator(pad_token_id=0))(whole.rows)
    with torch.no_grad():
        mine = float(whole.objective.terms(model, batch))
    expected = 0.0
    for group, row in zip(whole.rows, rows_of(folder, "whole"), strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([group.input_ids])).logits[0]
        logits = logits[row["prompt_tokens"] - 1 : -1].log_softmax(-1)
        top = row["top_logprobs"]
        teacher = torch.empty(len(logits), size).scatter(
            -1, torch.tensor(top["token_ids"]), torch.tensor(top["logprobs"])
        )
        expected += float(F.kl_div(logits, teacher, reduction="sum", log_target=True))
    assert mine == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_equal_distributions_do_not_differ(direction: str) -> None:
    generator = torch.Generator().manual_seed(1)
    mine, theirs = torch.randn(2, 3, 9, generator=generator).unbind()
    assert divergence(mine, mine + 2, direction).abs().max() < 1e-6
    assert (divergence(mine, theirs, direction) > 0).all()


def test_what_a_scoring_writes_is_what_a_student_reads(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    """The same model for both, and messages of which `prompt` is not the whole."""
    engine = load_engine(
        EngineSpec(type="transformers", model=str(prepare("tiny-llama")), dtype="float32")
    )
    rows = [TableRow(number, {"n": number}) for number in range(6)]
    columns = replace(columns_of(rows), has_top_logprobs=True)
    job, scored = Job(task="logprob", top_logprobs=3), []
    for row in rows:
        chat = [
            {"role": "system", "content": "short"},
            {"role": "user", "content": f"{row.number}"},
        ]
        engine.add(Request(id=0, prompt=chat, target=f"it is {row.number}"), job)
        (answer,) = engine.step()
        scored.append(ScoredRow(row, answer, prompt=chat, reference=f"it is {row.number}"))
    sink = Sink(str(folder / "scored"))
    for part in range(2):
        sink.write_table(part, part_table(scored[3 * part : 3 * part + 3], columns, None))
    sink.write("_metrics.json", b"{}")
    (folder / "scored" / "_ledger").mkdir()
    config = training({"type": "distill"}, "taught", data={"train": "scored"}, method="full")
    with pytest.raises(DataError, match="scoring that has not finished"):
        Truth(config, folder)
    sink.write("_SUCCESS", b"")
    truth = Truth(config, folder)
    assert [row.number for row in truth.rows] == [1, 2, 3, 4, 5, 6]
    batch = GroupCollator(truth.objective, Collator(pad_token_id=0))(truth.rows)
    with torch.no_grad():
        total = float(truth.objective.terms(truth.model().eval(), batch))
    assert abs(total) < 1e-4  # The student is its own teacher.


def damaged(row: dict[str, Any], what: str) -> dict[str, Any]:
    top = row["top_logprobs"]
    ids, values = top["token_ids"], top["logprobs"]
    tokens = row["target_tokens"]
    return {
        "another vocabulary": {**row, "target_tokens": [tokens[0] + 1, *tokens[1:]]},
        "another number": {
            **row,
            "target_tokens": tokens[:-1],
            "top_logprobs": {"token_ids": ids[:-1], "logprobs": values[:-1]},
        },
        "another prompt": {**row, "prompt_tokens": row["prompt_tokens"] + 3},
        "not scored": {**row, "top_logprobs": None, "error": "the prompt is too long"},
        "no logarithms": {
            **row,
            "top_logprobs": {"token_ids": ids, "logprobs": [[0.5] * 8] * len(ids)},
        },
        "not a number": {
            **row,
            "top_logprobs": {"token_ids": ids, "logprobs": [[float("nan")] * 8] * len(ids)},
        },
        "uneven": {
            **row,
            "top_logprobs": {"token_ids": ids, "logprobs": [values[0][:3], *values[1:]]},
        },
        "no lists": {**row, "top_logprobs": [1, 2]},
    }[what]


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ("another vocabulary", r"Row 2.*token 1 of the answer is number \d+ for the student"),
        ("another number", r"Row 2.*is \d+ tokens for the student and \d+ for the teacher"),
        ("another prompt", r"Row 2.*the prompt is \d+ tokens for the student"),
        ("not scored", "Row 2.*no answer of the teacher: the prompt is too long"),
        ("no logarithms", r"Row 2.*at token 1 are not the logarithms"),
        ("not a number", r"Row 2.*at token 1 are not the logarithms"),
        ("uneven", r"Row 2.*`target_tokens` has"),
        ("no lists", "Row 2.*`top_logprobs` is a list"),
    ],
)
def test_rows_of_another_teacher_are_refused(
    training: Training, folder: Path, what: str, match: str
) -> None:
    first, second, *rest = rows_of(folder)
    text = "".join(json.dumps(row) + "\n" for row in (first, damaged(second, what), *rest))
    (folder / "damaged.jsonl").write_text(text)
    with pytest.raises(DataError, match=match) as error:
        Truth(training({"type": "distill"}, "damaged"), folder)
    assert error.value.remedy
    skipped = Truth(training({"type": "distill"}, "damaged", data={"on_error": "skip"}), folder)
    assert len(skipped.rows) == len(rest) + 1


def test_rows_that_would_be_cut_are_refused(training: Training, folder: Path) -> None:
    with pytest.raises(DataError, match=r"beyond data.max_length=20 would be cut") as error:
        Truth(training({"type": "distill"}, "taught", data={"max_length": 20}), folder)
    assert "set data.max_length=" in error.value.remedy


def test_teachers_of_unlike_sizes_are_refused(training: Training, folder: Path) -> None:
    config = training({"type": "distill"}, "mixed")
    wide, narrow = next(taught(9)), next(taught(4))
    (folder / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (wide, narrow)))
    with pytest.raises(DataError, match="Row 2 has the 4 most probable tokens"):
        Truth(config, folder)
    wide["top_logprobs"]["token_ids"][0][8] = 10**6
    (folder / "mixed.jsonl").write_text(json.dumps(wide) + "\n")
    truth = Truth(config, folder)
    with pytest.raises(ConfigError, match="up to number 1,000,000"):
        truth.objective.check_model(truth.model())


def test_a_prompt_and_a_reference_are_a_chat(training: Training, folder: Path) -> None:
    rows = rows_of(folder)
    texts = []
    for row in rows:
        question, answer = row.pop("messages")
        texts.append({**row, "prompt": question["content"], "reference": answer["content"]})
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    config = training({"type": "distill"}, "taught")
    same = training({"type": "distill"}, "texts")
    assert Truth(config, folder).rows == Truth(same, folder).rows
