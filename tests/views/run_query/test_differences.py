from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.views.run_query.differences import (
    Naming,
    differences,
    family_distinctions,
    labels,
    number_text,
    short_labels,
    telling_differences,
)
from tests.views.run_query.rows import run, sweep


def test_a_sweep_is_told_apart_by_what_it_varies():
    rows = sweep(optimizer__learning_rate=[2e-3, 5e-4], method__r=[8, 16])
    assert list(labels(rows).values()) == [
        "lr 2e-3 · r 8",
        "lr 2e-3 · r 16",
        "lr 5e-4 · r 8",
        "lr 5e-4 · r 16",
    ]
    assert [each.path for each in differences(rows)] == ["optimizer.learning_rate", "method.r"]


def test_true_and_one_are_two_values_and_the_same_number_is_one():
    def of(*values):
        rows = [run(f"m-{n}", config={"a": value}) for n, value in enumerate(values)]
        return {each.path: each.num_values for each in differences(rows)}

    assert of(1, True) == of(True, 1) == of(0, False) == {"a": 2}
    assert of(1, 1.0) == of(True, True) == {}


def test_a_value_that_only_some_runs_have_differs():
    rows = [
        run("m-1", config={"method": {"type": "lora", "r": 8}}),
        run("m-2", config={"method": {"type": "full"}}),
    ]
    assert [each.path for each in differences(rows)] == ["method.type", "method.r"]
    assert list(labels(rows).values()) == ["lora · r 8", "full · r –"]


def test_two_sweeps_carry_their_names_and_what_differs_inside_each():
    one = [run(f"menu-{n}", config={"lr": lr}) for n, lr in enumerate([1e-3, 2e-3])]
    other = [run(f"tags-{n}", config={"lr": 9, "r": r}) for n, r in enumerate([4, 8])]
    assert list(labels([*one, *other]).values()) == [
        "menu · lr 1e-3",
        "menu · lr 2e-3",
        "tags · r 4",
        "tags · r 8",
    ]


def test_a_title_is_the_name_and_one_that_is_given_twice_gets_a_time():
    rows = [
        run("m-1", notes=RunNotes(title="best"), created_s=0),
        run("m-2", notes=RunNotes(title="best"), created_s=61),
        run("m-3", notes=RunNotes(title="other"), created_s=0),
    ]
    first, second, third = labels(rows).values()
    assert first.startswith("best · ")
    assert second.startswith("best · ")
    assert first != second
    assert third == "other"


def test_equal_configs_are_told_apart_by_cluster_then_by_time():
    rows = [run("m-1", config={"x": 1}), run("m-2", config={"x": 1}, cluster="gke")]
    assert list(labels(rows).values()) == ["on local", "on gke"]
    again = [run("m-1", created_s=5.0), run("m-2", created_s=5.0)]
    assert len(set(labels(again).values())) == 2


def test_one_run_has_its_name():
    assert labels([run("menu-1")]) == {"menu-1": "menu"}
    assert family_distinctions([run("menu-1")]) == {"menu-1": ""}


def test_seeds_and_outputs_come_last():
    rows = [
        run("m-1", config={"seed": 1, "output": {"url": "a"}, "zeta": 1}),
        run("m-2", config={"seed": 2, "output": {"url": "b"}, "zeta": 2}),
    ]
    assert [each.path for each in differences(rows)] == ["zeta", "output.url", "seed"]


@pytest.mark.parametrize("path", ["seed", "training.seed", "data_seed"])
def test_a_seed_tells_runs_apart_only_where_nothing_else_does(path):
    section, _, name = path.rpartition(".")

    def seeded(seed):
        return {section: {name: seed}} if section else {name: seed}

    pairs = [(lr, r) for lr in (1e-4, 3e-4, 1e-3) for r in (16, 32)]
    varied = [{"optimizer": {"learning_rate": lr}, "method": {"r": r}} for lr, r in pairs]
    rows = [run(f"m-{n}", config={**each, **seeded(n)}) for n, each in enumerate(varied)]
    assert next(iter(labels(rows).values())) == "lr 1e-4 · r 16"
    # Each twice, with two seeds.
    again = [run(f"m-{n + 6}", config={**each, **seeded(n + 9)}) for n, each in enumerate(varied)]
    assert labels([*rows, *again])["m-6"].startswith("lr 1e-4 · r 16 · ")
    assert labels([*rows, *again])["m-6"].endswith("seed 9")
    only = [run(f"m-{n}", config=seeded(n)) for n in range(3)]
    assert [text.endswith(f"seed {n}") for n, text in enumerate(labels(only).values())] == [
        True
    ] * 3


def test_names_are_of_all_runs_and_labels_say_the_config_where_there_are_several():
    rows = sweep(optimizer__learning_rate=[2e-3, 5e-4], method__r=[8, 16])
    other = run("tags-1", config={"seed": 1})
    naming = Naming([*rows, other])
    assert [naming.name(row) for row in rows[:2]] == ["lr 2e-3 · r 8", "lr 2e-3 · r 16"]
    assert list(naming.labels(rows[:2]).values()) == ["lr 2e-3 · r 8", "lr 2e-3 · r 16"]
    assert list(naming.labels([rows[0], other]).values()) == ["menu · lr 2e-3 · r 8", "tags"]


def test_only_the_differences_that_tell_runs_apart_are_in_a_label():
    rows = [run(f"m-{n}", config={"a": n, **{f"c{i}": n // 4 for i in range(9)}}) for n in range(8)]
    assert [each.path for each in telling_differences(rows)] == ["a"]
    assert len(differences(rows)) == 10


def test_paths_that_end_alike_keep_more_of_themselves():
    texts = short_labels(["a.b.lr", "c.b.lr", "optimizer.learning_rate", "x.r"])
    assert list(texts.values()) == ["a.b.lr", "c.b.lr", "lr", "r"]
    texts = short_labels(["model.id", "method.type", "type", "x", "x.id"])
    assert list(texts.values()) == ["model", "method", "type", "x", "x.id"]


def test_long_texts_are_cut_to_what_differs():
    rows = [
        run("m-1", config={"data": {"train": "s3://bucket/very/long/a.jsonl"}}),
        run("m-2", config={"data": {"train": "s3://bucket/very/long/b.jsonl"}}),
    ]
    assert list(labels(rows).values()) == ["train a.jsonl", "train b.jsonl"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2e-3, "2e-3"),
        (0.00015, "1.5e-4"),
        (0.5, "0.5"),
        (16.0, "16"),
        (0.0, "0"),
        (1e6, "1e6"),
        (123456.0, "123456"),
        (-2e-5, "-2e-5"),
        (0.1 + 0.2, "0.3"),
        (1e22, "1e22"),
    ],
)
def test_numbers_are_written_as_in_a_config(value, text):
    assert number_text(value) == text


_CONFIG = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), _CONFIG, max_size=4), max_size=5))
def test_any_configs_give_each_run_a_name_of_its_own(configs):
    rows = [run(f"m-{n}", config=config) for n, config in enumerate(configs)]
    names = labels(rows)
    assert len(set(names.values())) == len(rows)
    assert all(names.values())


@given(st.lists(st.dictionaries(st.text(), _CONFIG, max_size=4), max_size=6), st.data())
def test_each_family_has_the_words_that_it_has_alone(configs, data):
    names = data.draw(st.lists(st.sampled_from("ab"), min_size=6, max_size=6))
    rows = [
        run(f"m-{n}", config=config, name=name)
        for n, (config, name) in enumerate(zip(configs, names, strict=False))
    ]
    words = Naming(rows).distinctions
    for name in "ab":
        alone = family_distinctions([row for row in rows if row.get("name") == name])
        assert {run_id: words[run_id] for run_id in alone} == alone
