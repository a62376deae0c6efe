"""A form's values go into a text, and nothing else of the text changes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.assist import examine, merge, render
from llmops_kernel.config.assist.file_kinds import CLUSTER, TRAIN
from llmops_kernel.config.assist.template import cluster_template, training_template

BASE = "model: tiny-llama\ndata: rows.jsonl\n"


@pytest.mark.parametrize(
    ("text", "data", "expected"),
    [
        ("seed: 1  # one\n", {"seed": 2}, "seed: 2  # one\n"),
        ("seed: 1     # one\n", {"seed": 2000}, "seed: 2000  # one\n"),
        ("seed: 1\n", {"seed": 1}, "seed: 1\n"),
        ("seed: 42\n", {"name": "train"}, "seed: 42\n"),
        ("method: lora  # why\n", {"method": {"r": 8}}, "method:  # why\n  type: lora\n  r: 8\n"),
        ("method: lora\n", {"method": {"type": "full"}}, "method: full\n"),
        ("method:\n", {"method": {"r": 8}}, "method:\n  r: 8\n"),
        ("method: {r: 4}\n", {"method": {"lora_alpha": 8}}, "method: {r: 4, lora_alpha: 8}\n"),
        ("method: {}\n", {"method": {"r": 8}}, "method: {r: 8}\n"),
        ("method:\n    r: 4\n", {"method": {"type": "full"}},
         "method:\n    type: full\n"),
        ("method: {type: lora, r: 4}  # why\n", {"method": {"type": "full"}},
         "method: {type: full}        # why\n"),
        ("training:\n  max_steps: 5\n", {"training": {"max_steps": None}},
         "training:\n  max_steps: null\n"),
        ("report_to:\n  - wandb\n  # note\nseed: 1\n", {"report_to": ["mlflow", "wandb"]},
         "report_to: [mlflow, wandb]\n  # note\nseed: 1\n"),
        ("seed: 1", {"method": {"r": 8}}, "seed: 1\n\nmethod:\n  r: 8\n"),
        ("training_arguments: {adam_epsilon: 1.0e-8, optim: x}\n",
         {"training_arguments": {"optim": "x"}}, "training_arguments: {optim: x}\n"),
        ("training_arguments:\n  adam_epsilon: 1e-8\n  optim: x  # y\n",
         {"training_arguments": {"optim": "x"}}, "training_arguments:\n  optim: x  # y\n"),
        ("training_arguments:\n  optim: x\n", {"training_arguments": {}},
         "training_arguments: {}\n"),
    ],
)  # fmt: skip
def test_only_what_changed_is_edited(text: str, data: dict[str, Any], expected: str) -> None:
    assert merge(TRAIN, text, data) == expected


def test_whole_puts_what_is_left_out_back_to_its_default() -> None:
    text = BASE + "seed: 7  # lucky\nmethod:\n  r: 8\n  type: full\n"
    merged = merge(TRAIN, text, {"model": {"id": "tiny-llama"}, "data": "rows.jsonl"}, whole=True)
    assert merged == BASE + "method:\n  r: 16\n"


def test_a_text_that_cannot_be_edited_is_rewritten() -> None:
    data = {"name": "a", "model": "tiny-llama", "data": "rows.jsonl"}
    assert merge(TRAIN, "{{{", data) == render(TRAIN, data)
    anchored = BASE + "optimizer: &o {learning_rate: 1e-3}\ncheckpoint: 5\n"
    merged = merge(TRAIN, anchored, {"optimizer": {"learning_rate": 0.01}})
    found = examine(TRAIN, merged)
    assert found.values is not None
    assert found.values["optimizer"]["learning_rate"] == 0.01
    assert found.values["checkpoint"] == {"every_steps": 5}


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
changes = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 10**6),
        "model": st.fixed_dictionaries(
            {"id": words.filter(bool)}, optional={"trust_remote_code": st.booleans()}
        ),
        "method": st.fixed_dictionaries(
            {}, optional={"type": st.sampled_from(["full", "lora"]), "r": st.integers(1, 99)}
        ),
        "optimizer": st.fixed_dictionaries(
            {}, optional={"learning_rate": st.floats(1e-9, 10), "warmup_steps": st.integers(0, 9)}
        ),
        "output": st.fixed_dictionaries({}, optional={"url": st.none() | words}),
        "report_to": st.lists(st.sampled_from(["wandb", "mlflow"])),
        "training_arguments": st.dictionaries(
            st.sampled_from(["optim", "adam_epsilon", "tf32"]), words | st.floats(0, 1)
        ),
    },
)
texts = st.sampled_from(
    [
        BASE,
        training_template(),
        "# head\n" + BASE + "method: full # short\noptimizer: {learning_rate: 1e-3}\noutput:\n",
        BASE + "\nreport_to:\n- wandb\ntraining_arguments:\n  optim: a\n",
        "data:\n    train: a\n    # inner\nmodel:\n    id: b",
    ]
)


@settings(max_examples=80, deadline=None)
@given(text=texts, data=changes)
def test_what_went_in_is_what_is_read(text: str, data: dict[str, Any]) -> None:
    merged = merge(TRAIN, text, data)
    values = examine(TRAIN, merged).values
    assert values is not None
    again = merge(TRAIN, merged, data)
    assert again == merged
    for section, given_value in data.items():
        if isinstance(given_value, dict) and section != "training_arguments":
            for key, value in given_value.items():
                read = (values.get(section) or {}).get(key, value)
                assert read == value


@settings(max_examples=60, deadline=None)
@given(data=changes)
def test_comments_survive(data: dict[str, Any]) -> None:
    text = training_template()
    merged = merge(TRAIN, text, data).splitlines()
    comments = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    assert [line for line in merged if line.lstrip().startswith("#")] == comments


def test_a_cluster_template_keeps_its_comments_and_env() -> None:
    text = cluster_template(name="big")
    merged = merge(CLUSTER, text, {"num_cpus": 4, "env": {"A": "1"}, "warm": {"enabled": False}})
    changed = [line for line in merged.splitlines() if line not in text.splitlines()]
    assert changed == ["num_cpus: 4", "  enabled: false", "env: {A: '1'}"]


def test_render_keeps_what_differs() -> None:
    values = examine(TRAIN, BASE + "method: full\nseed: 42\noptimizer: {learning_rate: 1e-5}\n")
    assert values.config is not None
    assert render(TRAIN, values.config.model_dump(mode="json")) == (
        "name: train\nmodel: tiny-llama\ndata: rows.jsonl\nmethod: full\nparallelism: ddp\n\n"
        "optimizer:\n  learning_rate: 1e-5\n"
    )
    assert render(CLUSTER, {}) == "name: local\n"
