"""Proposals at a cursor (`|`) in texts as people half-write them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.assist import Completion, complete, diagnose, examine, hover
from llmops_kernel.config.assist.file_kinds import CLUSTER, TRAIN, Kind
from llmops_kernel.config.assist.template import training_template
from llmops_kernel.kinds.reading import file_kind_of


def at_bar(text: str, kind: Kind = TRAIN, folder: Path | None = None) -> list[Completion]:
    offset = text.index("|")
    before, text = text[:offset], text[:offset] + text[offset + 1 :]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1)
    return complete(kind, text, line=line, column=column, folder=folder)


def labels(found: list[Completion]) -> list[str]:
    return [item.label for item in found]


@pytest.mark.parametrize(
    ("text", "there", "not_there"),
    [
        ("|", ["model", "data", "optimizer"], ["learning_rate"]),
        ("mod|", ["model"], []),
        ("seed: 1\n|\nmodel: x\n", ["data"], ["seed", "model"]),
        ("optimizer:\n  |", ["learning_rate", "weight_decay"], ["model"]),
        ("optimizer:\n  learning_rate: 1\n  |", ["weight_decay"], ["learning_rate"]),
        ("optimizer:\n  |\n  weight_decay: 1\nseed: 1\n", ["learning_rate"], ["weight_decay"]),
        ("optimizer:\n  le|arning_rate: 1\n", ["learning_rate"], []),
        ("optimizer:\n  weight_decay: 0\n|", ["model"], ["learning_rate", "optimizer"]),
        ("optimizer: {learning_rate: 1, |}", ["weight_decay"], ["learning_rate"]),
        ("optimizer: {|", ["learning_rate"], []),
        ("optimizer: {\n  learning_rate: 1,\n  we|\nseed: 1\n", ["weight_decay"], ["seed"]),
        ("model: {dtype: |}", ["float32", "bfloat16"], []),
        ("model: {dtype: bf|}", ["bf16 → bfloat16"], []),
        ("method: |", ["lora", "full"], []),
        ("method:\n  type: |", ["lora", "full"], []),
        ("model: |", ["tiny-llama"], []),
        ("model:\n  id: |  # comment\n", ["tiny-llama"], []),
        ("model:\n  trust_remote_code: |", ["true", "false"], []),
        ("parallelism:\n  use_gpu: |", ["auto", "true", "false"], []),
        ("training:\n  max_steps: |", ["null"], []),
        ("training:\n  micro_batch_size: |", ["auto", "4"], []),
        ("optimizer:\n  learning_rate: |", ["2e-4"], []),
        ("optimizer:\n  learning_rate: 2|", [], ["2e-4"]),
        ("optimizer:\n  lr|", ["lr → learning_rate"], ["lr_scheduler → lr_scheduler_type"]),
        ("report_to: |", ["[wandb]"], []),
        ("report_to: [|]", ["wandb"], ["[wandb]"]),
        ("report_to:\n  - |", ["wandb"], []),
        ("report_to:\n- |", ["wandb"], []),
        ("training_arguments:\n  |", ["adam_epsilon"], ["bf16", "logging_steps"]),
    ],
)
def test_proposals(text: str, there: list[str], not_there: list[str]) -> None:
    found = labels(at_bar(text))
    assert set(there) <= set(found)
    assert not set(not_there) & set(found)


@pytest.mark.parametrize(
    "text",
    ["# |", "seed: 1  # a |", "seed: 1\n  |", "seed:|", "name: >\n  some | words\n", "optimizer: |",
     "foo:\n  |", "optimizer:\n  foo: |", "optimizer: {learning_rate: 1}|"],
)  # fmt: skip
def test_nothing_to_propose(text: str) -> None:
    assert at_bar(text) == []


def test_required_fields_come_first_and_say_so() -> None:
    first, second, *_ = at_bar("|")
    assert (first.label, second.label) == ("model", "data")
    assert first.insert == "model:\n  "
    (rate,) = [item for item in at_bar("optimizer:\n  |") if item.label == "learning_rate"]
    assert rate.insert == "learning_rate: "
    assert rate.detail == "a number above 0 (default 2e-4)"
    assert rate.documentation == "Peak learning rate."


def test_the_whole_word_is_replaced() -> None:
    (found,) = [item for item in at_bar("optimizer:\n  we|ight: 1\n") if "weight" in item.label]
    assert (found.insert, found.replace_from, found.replace_to) == ("weight_decay", 2, 8)
    (lora, *_) = [item for item in at_bar("method: f|ul  # why\n") if item.label == "full"]
    assert (lora.replace_from, lora.replace_to) == (8, 11)
    (flow, *_) = [i for i in at_bar("model: {dtype: fl|, id: x}") if i.label == "float32"]
    assert (flow.replace_from, flow.replace_to) == (15, 17)


def test_files_of_the_folder_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "rows.jsonl").write_text("{}\n")
    (folder / "hooks.py").write_text("")
    (tmp_path / "secret.jsonl").write_text("")
    assert "data/" in labels(at_bar("data: |", folder=folder))
    assert "data/rows.jsonl" in labels(at_bar("data:\n  train: data/|", folder=folder))
    assert "hooks.py" in labels(at_bar("hooks:\n  file: |", folder=folder))
    for prefix in ("../", "/", f"{tmp_path}/", "data/../../"):
        found = at_bar(f"data: {prefix}|", folder=folder)
        assert [item for item in found if item.kind == "file"] == []


def test_cluster_templates_are_completed_too() -> None:
    assert {"num_cpus", "warm"} <= set(labels(at_bar("|", CLUSTER)))
    assert labels(at_bar("provider: |", CLUSTER)) == ["local", "kuberay"]
    assert "preload" in labels(at_bar("warm:\n  |", CLUSTER))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("lora.train.yaml", "train"),
        ("a/b/lora.train.yml", "train"),
        ("cluster_templates/big.yaml", "cluster"),
        ("a/cluster_templates/big.yml", "cluster"),
        ("big.cluster.yaml", "cluster"),
        ("compose.yaml", None),
        ("cluster_templates/a/b.yaml", None),
        ("train.yaml", None),
    ],
)
def test_kinds_by_path(path: str, kind: str | None) -> None:
    found = file_kind_of(path)
    assert (found.name if found else None) == kind


@pytest.mark.parametrize(
    ("text", "line", "column", "title", "words"),
    [
        ("optimizer:\n  learning_rate: 1e-4\n", 2, 4, "optimizer.learning_rate", "Above 0"),
        ("optimizer:\n  learning_rate: 1e-4\n", 2, 18, "optimizer.learning_rate", "2e-4"),
        ("optimizer:\n", 1, 2, "optimizer", "`weight_decay`"),
        ("model: {dtype: bfloat16}\n", 1, 9, "model.dtype", "bfloat16"),
        ("training_arguments:\n  optim: x\n", 2, 3, "training_arguments.optim", "Transformers"),
    ],
)
def test_hover(text: str, line: int, column: int, title: str, words: str) -> None:
    found = hover(TRAIN, text, line=line, column=column)
    assert found is not None
    assert found.title == title
    assert words.lower() in found.text.lower()


def test_hover_of_what_is_unknown() -> None:
    assert hover(TRAIN, "foo: 1\n", line=1, column=1) is None
    assert hover(TRAIN, "seed: 1\n", line=9, column=1) is None
    assert hover(TRAIN, "seed: 1\n", line=1, column=99) is None


pieces = st.sampled_from(
    ["model", "data", ": ", ":", "\n", "\n  ", "\n    ", "- ", "{", "}", "[", "]", ",", "#", " ",
     "|", ">", "'", '"', "&a ", "*a", "<<: ", "!!int ", "\t", "é", "\r\n", "1e-4", "optimizer",
     "null", "learning_rate", "\x07", "\u2028", "?", "---", "training_arguments", "0x_"]
)  # fmt: skip
soup = st.lists(pieces, max_size=25).map("".join) | st.text(max_size=60)


@settings(max_examples=400, deadline=None)
@given(text=soup, line=st.integers(-1, 12), column=st.integers(-1, 40))
def test_no_text_and_no_place_is_too_odd(text: str, line: int, column: int) -> None:
    for kind in (TRAIN, CLUSTER):
        complete(kind, text, line=line, column=column, folder=Path())
        hover(kind, text, line=line, column=column)
        lines = text.split("\n")
        for item in diagnose(kind, text):
            assert 1 <= item.line <= item.end_line <= len(lines)
            assert 0 <= item.column <= len(lines[item.line - 1])
            assert (item.line, item.column) <= (item.end_line, item.end_column)


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(training_template())))
def test_every_cut_of_a_real_file(cut: int) -> None:
    text = training_template()[:cut]
    line, column = text.count("\n") + 1, len(text) - (text.rfind("\n") + 1)
    complete(TRAIN, text, line=line, column=column)
    diagnose(TRAIN, text)


def test_aliases_that_unfold_without_end_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    found = examine(TRAIN, "\n".join(lines))
    assert [p.message for p in found.problems] == ["aliases that expand into too many values"]
    assert examine(TRAIN, "[" * 5000).problems[0].message == "nested too deeply"


@pytest.mark.timeout(20)
def test_texts_that_are_no_configs_cost_little() -> None:
    for text in ("{" * 20_000, "a: {" * 20_000, "x" * 300_000, " " * 300_000 + "a", "- " * 5_000):
        complete(TRAIN, text, line=1, column=200)
        hover(TRAIN, text, line=1, column=200)
    assert "at most" in diagnose(TRAIN, "x" * 300_000)[0].message
