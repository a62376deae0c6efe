"""A form's values become a text that says the same."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.assist import examine, render
from llmops_kernel.config.assist.file_kinds import CLUSTER, TRAIN
from llmops_kernel.config.assist.template import cluster_template

BASE = "model: tiny-llama\ndata: rows.jsonl\n"


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


@settings(max_examples=80, deadline=None)
@given(data=changes)
def test_what_went_in_is_what_is_read(data: dict[str, Any]) -> None:
    text = render(TRAIN, {"model": "tiny-llama", "data": "rows.jsonl", **data})
    values = examine(TRAIN, text).values
    assert values is not None
    for section, given_value in data.items():
        if isinstance(given_value, dict) and section != "training_arguments":
            for key, value in given_value.items():
                assert (values.get(section) or {}).get(key, value) == value


def test_a_form_of_a_template_writes_what_was_changed() -> None:
    written = examine(CLUSTER, cluster_template(name="big")).values
    changed = {"num_cpus": 4, "env": {"A": "1"}, "warm": {"enabled": False}}
    assert render(CLUSTER, {**(written or {}), **changed}) == (
        "name: big\nnum_cpus: 4\n\nwarm:\n  enabled: false\n\nenv:\n  A: '1'\n"
    )


def test_render_keeps_what_differs() -> None:
    values = examine(TRAIN, BASE + "method: full\nseed: 42\noptimizer: {learning_rate: 1e-5}\n")
    assert values.config is not None
    assert render(TRAIN, values.config.model_dump(mode="json")) == (
        "name: train\nmodel: tiny-llama\ndata: rows.jsonl\nmethod: full\nparallelism: ddp\n\n"
        "optimizer:\n  learning_rate: 1e-5\n"
    )
    assert render(CLUSTER, {}) == "name: local\n"
