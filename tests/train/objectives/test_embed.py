"""Vectors against the losses, the evaluator and the reader of sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.errors import ConfigError, DataError
from tests.train.objectives.conftest import COUNT
from tests.train.objectives.test_preferences import assert_like
from tests.train.objectives.truths import Truth, padded, plain
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Training = Callable[..., Any]


def sentence_model(truth: Truth, model: Any, pooling: str) -> Any:
    """Return a SentenceTransformer around the model that is trained, which shares its weights."""
    from sentence_transformers import SentenceTransformer, models

    class Backbone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = [model]

        def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
            inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
            return {**features, "token_embeddings": self.inner[0](**inputs).last_hidden_state}

    width = model.config.get_text_config().hidden_size
    pool = models.Pooling(width, pooling_mode={"last": "lasttoken"}.get(pooling, pooling))
    return SentenceTransformer(modules=[Backbone(), pool], device="cpu")


def theirs_of(truth: Truth, pooling: str, make_loss: Callable[[Any], Any]) -> list[float]:
    made: dict[int, Any] = {}

    def loss_of(model: Any, groups: Any) -> torch.Tensor:
        loss = made.setdefault(id(model), make_loss(sentence_model(truth, model, pooling)))
        columns = zip(*(group.parts for group in groups), strict=True)
        features = [padded(column, truth.tokenizer.pad_token_id) for column in columns]
        scores = torch.tensor([group.target or 0.0 for group in groups])
        found: torch.Tensor = loss(features, scores)
        return found

    return plain(truth, loss_of)[0]


@pytest.mark.parametrize(("pooling", "part"), [("last", None), ("mean", 5), ("cls", None)])
def test_infonce_trains_as_sentence_transformers(
    training: Training, folder: Path, tmp_path: Path, pooling: str, part: int | None
) -> None:
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    fields = {"type": "embed", "pooling": pooling, "temperature": 0.1, "mini_batch_size": part}
    config = training(fields, "queries", optimizer={"learning_rate": 1e-4})
    truth = Truth(config, folder)
    theirs = theirs_of(truth, pooling, lambda m: MultipleNegativesRankingLoss(m, scale=10.0))
    mine = losses(run(config, tmp_path / "run", folder))
    assert list(mine.values()) == pytest.approx(theirs, abs=1e-4)


def test_matryoshka_is_the_sum_of_the_losses_of_cut_vectors(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

    fields = {"type": "embed", "dimensions": [8, 16], "temperature": 0.2}
    config = training(fields, "queries", optimizer={"learning_rate": 1e-4})
    truth = Truth(config, folder)
    width = truth.model().config.hidden_size
    theirs = theirs_of(
        truth,
        "last",
        lambda m: MatryoshkaLoss(m, MultipleNegativesRankingLoss(m, scale=5.0), [width, 16, 8]),
    )
    mine = losses(run(config, tmp_path / "run", folder))
    assert list(mine.values()) == pytest.approx(theirs, abs=1e-4)


def test_triplets_train_as_sentence_transformers(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers.losses import TripletDistanceMetric, TripletLoss

    fields = {"type": "embed", "loss_type": "triplet", "margin": 1.5}
    config = training(fields, "queries", optimizer={"learning_rate": 1e-4})
    truth = Truth(config, folder)
    theirs = theirs_of(
        truth,
        "last",
        lambda m: TripletLoss(m, TripletDistanceMetric.COSINE, triplet_margin=1.5),
    )
    assert_like(losses(run(config, tmp_path / "run", folder)), theirs)


def test_scores_train_as_sentence_transformers(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers.losses import CosineSimilarityLoss

    fields = {"type": "embed", "loss_type": "cosine", "pooling": "mean"}
    config = training(fields, "scores", optimizer={"learning_rate": 1e-4})
    truth = Truth(config, folder)
    theirs = theirs_of(truth, "mean", CosineSimilarityLoss)
    mine = losses(run(config, tmp_path / "run", folder))
    assert list(mine.values()) == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_result_is_read_by_sentence_transformers_and_finds_as_much(
    training: Training, folder: Path, tmp_path: Path, method: str
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.evaluation import InformationRetrievalEvaluator

    config = training(
        {"type": "embed", "dimensions": [16], "query_prefix": "find: "},
        "queries",
        method=method,
        data={"eval": "queries.jsonl"},
    )
    metrics = of(run(config, tmp_path / "run", folder), "eval")[-1].metrics
    output = tmp_path / "run" / "output"
    if method == "lora":  # An adapter names its base, which this catalogue alone knows.
        settings = json.loads((output / "adapter_config.json").read_text())
        settings["base_model_name_or_path"] = Truth(config, folder).source
        (output / "adapter_config.json").write_text(json.dumps(settings))
    model = SentenceTransformer(str(output), device="cpu")
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    texts = {text: text for row in rows for text in (row["positive"], *row["negatives"])}
    for size in (16, None):
        found = InformationRetrievalEvaluator(
            queries={row["query"]: row["query"] for row in rows},
            corpus=texts,
            relevant_docs={row["query"]: {row["positive"]} for row in rows},
            mrr_at_k=[10],
            ndcg_at_k=[10],
            accuracy_at_k=[1],
            precision_recall_at_k=[1, 10],
            map_at_k=[10],
            truncate_dim=size,
            query_prompt="find: ",
            batch_size=8,
        )(model)
        end = "" if size is None else f"_dim{size}"
        for name in ("recall@1", "recall@10", "ndcg@10", "mrr@10"):
            assert metrics[f"eval_{name}{end}"] == pytest.approx(found[f"cosine_{name}"]), name
    assert len(rows) == COUNT


def test_a_length_that_no_vector_has_is_refused(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    config = training({"type": "embed", "dimensions": [8, 4096]}, "queries")
    with pytest.raises(ConfigError, match="4096"):
        run(config, tmp_path / "run", folder)


BROKEN = {
    "no score": ({"loss_type": "cosine"}, "queries"),
    "a score": ({}, "scores"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_rows_of_another_loss_are_refused_before_the_run(
    training: Training, folder: Path, tmp_path: Path, case: str
) -> None:
    fields, rows = BROKEN[case]
    with pytest.raises(DataError, match=case):
        run(training({"type": "embed", **fields}, rows), tmp_path / "run", folder)
