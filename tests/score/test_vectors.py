"""Two scorings of vectors on a real cluster, against the evaluator of sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmops_kernel as llmops
from llmops_kernel.cli.main import main
from llmops_kernel.models.catalogue import prepare
from tests.score.conftest import output_of, table_of
from tests.score.engines.test_returned import PREFIXES, as_texts, sentences

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside]

WORDS = ("salt", "rice", "bean", "lime", "corn", "leek", "plum")
COUNT = 70


def rows() -> list[dict[str, Any]]:
    """Return queries with what answers them: some share an answer, some have two."""
    return [
        {
            "id": f"r{n}",
            "text": f"dish {n % 60} with {WORDS[n % 60 % 7]}?",
            "answer": f"{WORDS[n % 7]} {n // 2 * 2} and {WORDS[n // 2 % 7]}",
        }
        for n in range(COUNT)
    ]


def truth(folder: Path, size: int | None = None) -> dict[str, float]:
    """Return what their evaluator says of the same table."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.evaluation import InformationRetrievalEvaluator

    relevant: dict[str, set[str]] = {}
    for row in rows():
        relevant.setdefault(row["text"], set()).add(row["answer"])
    found = InformationRetrievalEvaluator(
        queries={text: text for text in relevant},
        corpus={row["answer"]: row["answer"] for row in rows()},
        relevant_docs=relevant,
        mrr_at_k=[10],
        ndcg_at_k=[10],
        accuracy_at_k=[1],
        precision_recall_at_k=[1, 10],
        map_at_k=[10],
        truncate_dim=size,
        query_prompt=PREFIXES["query"],
        corpus_prompt=PREFIXES["document"],
    )(SentenceTransformer(str(folder), device="cpu"))
    end = f"_dim{size}" if size else ""
    names = ("recall@1", "recall@10", "ndcg@10", "mrr@10")
    return {f"{name}{end}": found[f"cosine_{name}"] for name in names}


def plain_ranks(table: list[dict[str, Any]]) -> dict[str, bool]:
    """Return of each query whether one of its answers is among the ten nearest."""
    texts = {row["reference"]: np.array(row["reference_embedding"]) for row in table}
    known, matrix = list(texts), np.stack([*texts.values()])
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    found: dict[str, bool] = {}
    for row in table:
        answers = {other["reference"] for other in table if other["prompt"] == row["prompt"]}
        nearest = np.argsort(-(matrix @ np.array(row["embedding"])), kind="stable")[:10]
        found[row["prompt"]] = any(known[place] in answers for place in nearest)
    return found


def test_what_queries_find_and_which_flip(
    score: Callable[..., llmops.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "task": "embed",
        "prompt.reference": "answer",
        "engine.type": "transformers",
        "model.dtype": "float32",
        "evaluation": {"metrics": ["retrieval"], "dimensions": [16]},
        "output.part_rows": 40,
    }
    runs, tables = [], []
    for pooling in ("lasttoken", "mean"):
        base = prepare("tiny-llama")
        folder = as_texts(sentences(tmp_path / pooling, base, pooling, length=64))
        run = score(rows(), **settings, **{"model.id": str(folder)})
        run.wait(120)
        summary = json.loads((output_of(run) / "_metrics.json").read_text())
        assert summary["metrics"] == pytest.approx(truth(folder) | truth(folder, 16), abs=1e-6)
        runs.append(run)
        tables.append(table_of(output_of(run)))
    before, after = map(plain_ranks, tables)
    compared = llmops.compare(*runs)
    changes = {change.name: change for change in compared.scores.metrics}
    recall = changes["recall@10"]
    assert recall.rows == len(before) == 60, "a query of several rows counts once"
    assert recall.low is not None
    assert recall.high is not None
    assert recall.delta is not None
    assert recall.low <= recall.delta <= recall.high
    assert changes["recall@10_dim16"].delta is not None
    flipped = compared.rows("flipped")
    assert {row.prompt for row in flipped.itertuples()} == {
        text for text in before if before[text] != after[text]
    }
    assert len(flipped) == compared.scores.counts["flipped"] > 0
    known = {row["answer"] for row in rows()}
    assert {*flipped["before"], *flipped["after"]} <= known, "what each found first"
    with pytest.raises(SystemExit) as ended:
        main(["compare", *(run.id for run in runs), "--rows", "flipped"])
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert "recall@10" in shown
    assert str(flipped["prompt"].iloc[0]) in shown
