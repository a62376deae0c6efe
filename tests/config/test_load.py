"""A config is read as people write it, fast, and writes back the same."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.assist.template import training_template
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import closest
from llmops_kernel.config.reading.check import upgraded
from llmops_kernel.config.reading.document import dump, flatten, parse_value
from llmops_kernel.errors import ConfigError
from tests.configs import dump_yaml, load_training_config, training_config_from_dict

BASE = {"model": "tiny-llama", "data": "rows.jsonl"}


def read(text: str, tmp_path: Path) -> TrainingConfig:
    path = tmp_path / "a.train.yaml"
    path.write_text("model: tiny-llama\ndata: rows.jsonl\n" + text)
    return load_training_config(path)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("optimizer:\n  learning_rate: 1e-4\n", "optimizer.learning_rate", 1e-4),
        ('optimizer:\n  learning_rate: "1e-4"\n', "optimizer.learning_rate", 1e-4),
        ("optimizer: {learning_rate: 5E-05}\n", "optimizer.learning_rate", 5e-5),
        ("optimizer: {weight_decay: .1}\n", "optimizer.weight_decay", 0.1),
        ("training: {max_steps: 100.0}\n", "training.max_steps", 100),
        ("training: {max_steps: 1e3}\n", "training.max_steps", 1000),
        ("training: {max_steps: 1_000}\n", "training.max_steps", 1000),
        ("training: {max_steps: 010}\n", "training.max_steps", 10),
        ("data:\n  train: x\n  packing: yes\n", "data.packing", True),
        ("parallelism: {use_gpu: off}\n", "parallelism.use_gpu", False),
        ("parallelism: {use_gpu: auto}\n", "parallelism.use_gpu", "auto"),
        ("performance: off\n", "performance.mode", "off"),
        ("performance: auto\n", "performance.mode", "auto"),
        ("name: no\n", "name", "no"),
        ("name: 007\n", "name", "007"),
        ("name: 2026-01-31\n", "name", "2026-01-31"),
        ("hooks: hooks.py\n", "hooks.file", "hooks.py"),
        ("checkpoint: 50\n", "checkpoint.every_steps", 50),
        ("checkpoint:\n", "checkpoint.every_steps", None),
        ("method:\n  # all at their default\n", "method.type", "lora"),
        ("method:\n  target_modules: [q_proj, v_proj]\n", "method.target_modules",
         ["q_proj", "v_proj"]),
        ("report_to: wandb\n", "report_to", ["wandb"]),
        ("report_to: none\n", "report_to", []),
        ("training_arguments:\n  adam_epsilon: 1e-8\n", "training_arguments.adam_epsilon", 1e-8),
        ("defaults: &d {weight_decay: 0.5}\n", None, None),
    ],
)  # fmt: skip
def test_yaml_as_people_write_it(text: str, path: str | None, value: object, tmp_path: Path):
    if path is None:
        with pytest.raises(Exception, match="defaults: unknown key"):
            read(text, tmp_path)
        return
    config = (load_text if text.startswith("data:") else read)(text, tmp_path)
    flat = flatten(config)
    assert flat[path] == value
    assert type(flat[path]) is type(value)


def load_text(text: str, tmp_path: Path) -> TrainingConfig:
    path = tmp_path / "a.train.yaml"
    path.write_text("model: tiny-llama\n" + text)
    return load_training_config(path)


def test_anchors_and_merge_keys_work(tmp_path: Path):
    text = "evaluation: &every {every_steps: 7}\ncheckpoint:\n  <<: *every\n  keep: 1\n"
    text += "data: {train: x, eval: y}\n"
    config = load_text(text, tmp_path)
    assert (config.checkpoint.every_steps, config.checkpoint.keep) == (7, 1)


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True)
CHARACTERS = st.characters(exclude_categories=("Cc", "Cs", "Cn", "Co")) | st.sampled_from("\n\t")
TEXTS = st.text(CHARACTERS, min_size=1, max_size=30)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> TrainingConfig:
    micro = draw(st.integers(1, 64))
    return training_config_from_dict(
        {
            "name": draw(NAMES),
            "seed": draw(st.integers(0, 2**32)),
            "model": {"id": draw(TEXTS), "revision": draw(st.none() | TEXTS)},
            "data": {"train": draw(TEXTS), "eval": draw(TEXTS), "packing": draw(st.booleans())},
            "method": {"target_modules": draw(st.lists(TEXTS, max_size=3)), "r": micro},
            "optimizer": {"learning_rate": draw(st.floats(1e-300, 1e10))},
            "training": {"micro_batch_size": micro, "global_batch_size": micro * 3},
            "evaluation": {"every_steps": draw(st.none() | st.integers(1, 10**6))},
            "training_arguments": {"optim_args": draw(PLAIN), "lr_scheduler_kwargs": draw(PLAIN)},
        }
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(config=configs())
def test_a_dumped_config_reads_back_the_same(config: TrainingConfig):
    text = dump_yaml(config)
    assert training_config_from_dict(parse_value(text)) == config
    assert training_config_from_dict(config.model_dump(mode="json")) == config


@settings(max_examples=100, deadline=None)
@given(value=PLAIN)
def test_the_dialect_reads_what_it_writes(value: object):
    assert parse_value(dump(value)) == value


def test_the_dialect_makes_plain_values_only():
    with pytest.raises(yaml.YAMLError):
        parse_value("!!python/name:os.system")


@settings(max_examples=30, deadline=None)
@given(config=configs())
def test_the_flat_config_laid_over_another_gives_the_config(config: TrainingConfig):
    flat = {path: value for path, value in flatten(config).items() if "arguments" not in path}
    assert flatten(training_config_from_dict(BASE, flat)).items() >= flat.items()


def test_flatten_takes_a_record_too():
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": {}}) == {"a.b.c": 1, "a.d": [2]}


def test_a_record_of_an_earlier_release_is_read_without_the_fields_that_are_gone():
    old = {**BASE, "performance": {"mode": "off", "logits": "all", "matmul": "auto"}}
    config = training_config_from_dict(upgraded(TrainingConfig, old))
    assert config == training_config_from_dict({**BASE, "performance": "off"})
    # What `llmops init` wrote says nothing that is lost; another value does.
    for name, value in (("logits", "labels"), ("matmul", "onednn")):
        with_default = {**BASE, "performance": {"mode": "off", name: "auto"}}
        assert training_config_from_dict(with_default) == config
        with pytest.raises(ConfigError, match=f"performance.{name}"):
            training_config_from_dict({**BASE, "performance": {name: value}})


def test_loading_is_quick(tmp_path: Path):
    path = tmp_path / "a.train.yaml"
    path.write_text(training_template())
    load_training_config(path)
    costs_s = []
    for _ in range(5):
        begun_s = time.process_time()
        load_training_config(path, {"learning_rate": 1e-4})
        costs_s.append(time.process_time() - begun_s)
    assert min(costs_s) < 0.05


def test_loading_imports_nothing_heavy():
    script = (
        "import sys; from llmops_kernel.kinds.reading import load;"
        " print([name for name in ('torch', 'pandas', 'pyarrow', 'ray') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_closest_minds_neither_case_nor_dashes():
    assert closest("Tiny_Lama", ["tiny-llama", "tiny-qwen2"]) == "tiny-llama"
    assert closest("xyz", ["tiny-llama"]) is None
