"""Rows that get hard negatives from a scoring that is there: what is read, chosen and written."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import ComparisonError, ConfigError, DataError, RunStateError
from llmops_kernel.metrics.hard_negatives import Rule
from llmops_kernel.services.scoring.mine import Mined, Mining
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run
from tests.services.scoring.outputs import write_output
from tests.tiny_training import write_training

if TYPE_CHECKING:
    from llmops_kernel.providers.protocol import ClusterInfo

Row = dict[str, Any]
ANGLES = {"noodles": 0.0, "Pad Thai": 0.1, "pho": 0.3, "ramen": 0.5, "soba": 0.7, "pizza": 1.5}
"""Of the texts; what is near in angle is similar."""
_NO_MORE = "there are no more texts"
ROWS: list[Row] = [
    {"query": "noodles", "positive": "Pad Thai", "id": 1},
    {"query": "noodles", "positive": "pho", "id": 2},
    {"query": "pizza", "positive": "ramen", "negatives": ["soba"], "id": 3},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, rows: Sequence[Row]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def vector(angle: float | None, length: float = 3.0) -> list[float] | None:
    return None if angle is None else [length * math.cos(angle), length * math.sin(angle)]


@pytest.fixture
def mined(folder: Path, store: RunStore) -> Callable[..., Mined]:
    """Mines rows whose scoring gave these angles; the towers have prefixes."""

    def mine(
        rows: Sequence[Row] | str | Path = ROWS,
        angles: Mapping[str, Any] = ANGLES,
        *,
        corpus: str | None = None,
        force: bool = False,
        **rule: Any,
    ) -> Mined:
        objective = {"type": "embed", "query_prefix": "q: ", "document_prefix": "d: "}
        if not store.run_ids():
            make_run(store, "towers", kind="train", config={"objective": objective})
            root = make_run(store, "mine", kind="score", config={"model": {"run": "towers"}})
            scored = [
                {
                    "text": prefix + text,
                    "embedding": found if isinstance(found, list) else vector(found),
                }
                for text, found in angles.items()
                for prefix in ("q: ", "d: ")
            ]
            write_output(root / "output", scored)
        data = rows if isinstance(rows, str | Path) else write(folder / "rows.jsonl", rows)
        chosen = Rule(**{"negatives": 2, "margin": 0.0, **rule})
        mining = Mining(
            *(data, "towers", folder / "out.jsonl"),
            store=store,
            rule=chosen,
            corpus=corpus,
            force=force,
        )
        return mining.write("mine")

    return mine


def written(mined: Mined) -> list[Row]:
    return [json.loads(line) for line in mined.path.read_text().splitlines()]


def test_rows_are_written_with_the_nearest_texts_that_are_no_positives(
    mined: Callable[..., Mined],
) -> None:
    found = mined()
    assert written(found) == [
        {**ROWS[0], "negatives": ["ramen", "soba"]},
        {**ROWS[1], "negatives": ["ramen", "soba"]},
        {**ROWS[2], "negatives": ["soba", "pho", "Pad Thai"]},
    ]
    assert (found.queries, found.documents, found.fewer) == (2, 4, {})
    positives = sorted([math.cos(0.1), math.cos(0.3), math.cos(1.0)])
    assert found.similarity_positive == pytest.approx(positives[1], abs=1e-6)
    said = str(found)
    assert "3 rows with 7 negatives, of 4 texts" in said
    assert said == repr(found)


@pytest.mark.parametrize(
    ("rule", "negatives", "fewer"),
    [
        ({"replace": True}, [["ramen", "soba"], ["pho", "Pad Thai"]], {}),
        ({"negatives": 1, "skip": 1}, [["soba"], ["soba", "Pad Thai"]], {}),
        ({"margin": 0.3}, [[], ["soba", "Pad Thai"]], {"the others are above the margin": 3}),
        ({"negatives": 3}, [["ramen", "soba"], ["soba", "pho", "Pad Thai"]], {_NO_MORE: 3}),
    ],
)
def test_rules_and_what_they_leave(
    mined: Callable[..., Mined], rule: Row, negatives: list[list[str]], fewer: dict[str, int]
) -> None:
    found = mined(**rule)
    rows = written(found)
    assert [rows[0]["negatives"], rows[2]["negatives"]] == negatives
    assert found.fewer == fewer
    empty = sum(not row["negatives"] for row in rows)
    assert ("without negatives" in str(found)) == bool(empty)


def test_texts_that_differ_in_case_and_spaces_are_one(mined: Callable[..., Mined]) -> None:
    rows = [
        {"query": "Noodles", "positive": "pad  thai"},
        {"query": "noodles ", "positive": "pho"},
        {"query": "pizza", "positive": "ramen", "negative": "NOODLES"},
        {"query": "pizza", "positive": "Ramen "},
    ]
    names = {"pad  thai": 0.2, "Noodles": 0.0, "noodles ": 0.05, "NOODLES": 0.0, "Ramen ": 0.45}
    found = mined(rows, {**ANGLES, **names}, negatives=5)
    assert [row["negatives"] for row in written(found)] == [
        ["Ramen "],
        ["Ramen "],
        ["NOODLES", "pho", "pad  thai"],
        ["pho", "pad  thai"],
    ]
    assert "negative" not in written(found)[2]
    assert any("1 document text like another one but for case" in note for note in found.notes)
    assert found.documents == 4


def test_rows_without_a_vector_are_named_and_never_chosen(mined: Callable[..., Mined]) -> None:
    rows = [*ROWS, {"query": "soup", "positive": "soba"}, {"query": "pizza", "positive": "udon"}]
    angles = {**ANGLES, "ramen": None, "udon": [math.nan, 1.0], "soup": [0.0, 0.0]}
    found = mined(rows, angles, negatives=1)
    rows = written(found)
    assert [row["negatives"] for row in rows] == [["soba"], ["soba"], ["soba"], [], []]
    said = "\n".join(found.notes)
    assert "1 query text without a vector: 'soup'" in said
    assert "2 document texts without a vector: 'ramen', 'udon'" in said
    assert sum(found.fewer.values()) == 3
    assert found.documents == 3


def test_more_texts_to_choose_among(mined: Callable[..., Mined], folder: Path) -> None:
    write(folder / "menu.jsonl", [{"dish": "soba"}, {"dish": "pizza"}, {"dish": " "}, {"dish": 3}])
    rows = [{"query": "noodles", "positive": "pho"}]
    found = mined(rows, corpus="menu.jsonl:dish")
    assert written(found)[0]["negatives"] == ["soba", "pizza"]
    assert any("2 rows of menu.jsonl left out" in note for note in found.notes)
    with pytest.raises(DataError, match=r"row 1: no column 'text'.*\n.*menu.jsonl:COLUMN"):
        mined(rows, corpus="menu.jsonl", force=True)


def test_the_rows_of_a_config_are_read_as_it_says(
    mined: Callable[..., Mined], folder: Path
) -> None:
    rows = [{"question": row["query"], "positive": row["positive"]} for row in ROWS]
    write(folder / "data" / "a.jsonl", [*rows[:1], {"question": "", "positive": "x"}])
    write(folder / "data" / "b.jsonl", [*rows[1:2], {"question": "never", "positive": "read"}])
    config = {
        "model": "tiny-llama",
        "objective": "embed",
        "data": {
            "train": ["data/a.jsonl", {"path": "data/b.jsonl", "weight": 2}],
            "columns": {"query": "question"},
            "on_error": "skip",
            "max_rows": 2,
        },
    }
    (folder / "towers.train.yaml").write_text(json.dumps(config))
    write(folder / "data" / "b.jsonl", rows[1:2])
    found = mined(folder / "towers.train.yaml")
    assert [row["query"] for row in written(found)] == ["noodles", "noodles"]
    said = "\n".join(found.notes)
    for words in ("b.jsonl (weight 2)", "1 row left out", "leave data.columns out"):
        assert words in said
    (folder / "hooks.py").write_text("def format_example(row):\n    return row\n")
    (folder / "towers.train.yaml").write_text(json.dumps({**config, "hooks": "hooks.py"}))
    with pytest.raises(ConfigError, match=r"format_example of hooks\.py"):
        mined(folder / "towers.train.yaml", force=True)


def test_no_file_is_overwritten_unasked_and_the_same_vectors_give_the_same_bytes(
    mined: Callable[..., Mined],
) -> None:
    found = mined()
    first = found.path.read_bytes()
    with pytest.raises(ConfigError, match=r"out.jsonl already exists.*\n.*--force"):
        mined()
    found.path.unlink()
    assert mined().path.read_bytes() == first
    assert mined(negatives=1, force=True).path.read_bytes() != first
    assert {path.name for path in found.path.parent.glob("*")} == {
        "rows.jsonl",
        "out.jsonl",
        "home",
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "a"}], "rows.jsonl, row 1: has only the keys query"),
        ([ROWS[0], {"query": "a", "positive": " "}], "row 2: `positive` is empty"),
        ([{"text1": "a", "text2": "b", "score": 1}], "row 1: has a score and no positive"),
        ([], "has no rows"),
    ],
)
def test_rows_that_cannot_be_mined(
    mined: Callable[..., Mined], rows: list[Row], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        mined(rows)


def test_which_runs_are_of_use(mined: Callable[..., Mined], store: RunStore, folder: Path) -> None:
    mined()
    data, rule = folder / "rows.jsonl", Rule()
    make_run(store, "chat", kind="train", config={"model": "tiny-llama"})
    with pytest.raises(RunStateError, match="objective is sft"):
        Mining(data, "chat", store=store, rule=rule)
    mining = Mining(data, "towers", store=store, rule=rule)
    assert mining.path == folder / "rows-mined.jsonl"
    make_run(store, "other", kind="score", config={"model": {"run": "chat"}})
    with pytest.raises(RunStateError, match="other is no scoring with the model of run towers"):
        mining.write("other")
    root = make_run(store, "part", kind="score", config={"model": {"run": "towers"}})
    write_output(root / "output", [{"text": "q: noodles"}], success=False)
    with pytest.raises(ComparisonError, match="part has not finished"):
        mining.write("part")
    (root / "output" / "_SUCCESS").touch()
    with pytest.raises(DataError, match=r"part has 1 of 2 texts: not 'q: pizza'.*\n.*--scored"):
        mining.write("part")
    write(folder / "split" / "train.jsonl", ROWS)
    write(folder / "split" / "test.jsonl", ROWS)
    with pytest.raises(DataError, match=r"split has 2 tables.*\n.*pattern"):
        Mining(folder / "split", "towers", store=store, rule=rule)
    mined(f"{folder}/split/tr*.jsonl", force=True)


@pytest.mark.ray
@pytest.mark.slow
def test_a_trained_model_finds_what_sentence_transformers_finds_with_it(
    ray_cluster: ClusterInfo, folder: Path
) -> None:
    rows = [{"query": f"which {a} {b}", "positive": f"{b} of {a}"} for a, b in product(_A, _B)]
    objective = {
        "type": "embed",
        "query_prefix": "q: ",
        "document_prefix": "d: ",
        "pooling": "mean",
    }
    config = write_training(
        *(folder / "work", "towers"),
        objective=objective,
        data={"train": "pairs.jsonl"},
        method="full",
    )
    write(folder / "work" / "pairs.jsonl", rows)
    cluster = llmops.cluster(ray_cluster.name)
    run = cluster.submit(config)
    assert run.wait(300) == "SUCCEEDED", run.logs()

    words = ["mine", str(config), "--run", run.id, "--cluster", cluster.name, "--output", "a.jsonl"]
    changes = ["engine.type=transformers", "model.dtype=float32"]
    command = [sys.executable, "-m", "llmops_kernel", *words, *changes]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr is not None
        found = (re.search(r"--scored (\S+)", line) for line in killed.stderr)
        scored = next(match for match in found if match)[1]
        killed.kill()
    assert not (folder / "a.jsonl").exists()
    llmops.mine(config, run, "a.jsonl", margin=0.01, scored=scored)
    mined = llmops.mine(
        *(folder / "work" / "pairs.jsonl", run.id, "b.jsonl"),
        margin=0.01,
        cluster=cluster.name,
        overrides=changes,
    )
    scorings = [one.record for one in llmops.runs() if one.record.kind == "score"]
    assert sum(record.config["model"]["run"] == run.id for record in scorings) == 2
    assert mined.path.read_bytes() == (folder / "a.jsonl").read_bytes()
    assert {row["query"]: row["negatives"] for row in written(mined)} == _theirs(run.output, rows)


_A, _B = ("red", "blue", "green"), ("apple", "boat", "chair", "door")


def _theirs(model: Any, rows: list[Row]) -> dict[str, list[str]]:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    found = mine_hard_negatives(
        Dataset.from_list(rows),
        SentenceTransformer(str(model), device="cpu"),
        range_max=len(rows),
        absolute_margin=0.01,
        num_negatives=4,
        output_format="triplet",
        verbose=False,
    )
    negatives: dict[str, list[str]] = {row["query"]: [] for row in rows}
    for row in found:
        negatives[row["query"]].append(row["negative"])
    return negatives
