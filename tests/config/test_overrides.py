"""Overrides: the same words on the command line and in Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.models.methods import LoraMethod
from llmops_kernel.config.reading.document import flatten
from llmops_kernel.errors import ConfigError
from tests.configs import load_training_config, training_config_from_dict

BASE = {
    "model": {"id": "tiny-llama", "dtype": "bfloat16"},
    "data": "rows.jsonl",
    "method": {"type": "lora", "r": 4},
    "parallelism": {"num_workers": 2},
    "training_arguments": {"optim": "adamw_torch", "lr_scheduler_kwargs": {"a": 1}},
}


def changed(overrides) -> dict[str, object]:
    before = flatten(training_config_from_dict(BASE))
    after = flatten(training_config_from_dict(BASE, overrides))
    return {path: value for path, value in after.items() if before.get(path) != value}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"learning_rate": 1e-4}, {"optimizer.learning_rate": 1e-4}),
        ({"lr": "1e-4"}, {"optimizer.learning_rate": 1e-4}),
        (["lr=1e-4"], {"optimizer.learning_rate": 1e-4}),
        (["optimizer.learning_rate=1e-4"], {"optimizer.learning_rate": 1e-4}),
        (["--training.max-steps=20"], {"training.max_steps": 20}),
        ({"seed": 7, "name": "x"}, {"seed": 7, "name": "x"}),
        (["name=007"], {"name": "007"}),
        (["name=no"], {"name": "no"}),
        ({"method": "full"}, {"method.type": "full"}),
        ({"parallelism": "zero3"}, {"parallelism.strategy": "zero3"}),
        ({"model": "tiny-qwen2"}, {"model.id": "tiny-qwen2"}),
        ({"method": LoraMethod(r=9)}, {"method.r": 9}),
        ({"method": {"r": 8}}, {"method.r": 8}),
        ({"checkpoint": 5}, {"checkpoint.every_steps": 5}),
        ({"hooks": None}, {}),
        (["method.target_modules=[q_proj, v_proj]"],
         {"method.target_modules": ["q_proj", "v_proj"]}),
        (["data.train=s3://a/b?c=d"], {"data.train": "s3://a/b?c=d"}),
        (["data.train=*.jsonl"], {"data.train": "*.jsonl"}),
        (["max_steps=null"], {}),
        ({"micro_batch_size": 8}, {"training.micro_batch_size": 8}),
        ({"training_arguments": {"adam_epsilon": 1e-6}}, {"training_arguments.adam_epsilon": 1e-6}),
        (["training_arguments.lr_scheduler_kwargs.b=2"],
         {"training_arguments.lr_scheduler_kwargs.b": 2}),
        (["seed=1", "seed=2"], {"seed": 2}),
        ("seed=3", {"seed": 3}),
    ],
    ids=str,
)  # fmt: skip
def test_only_what_was_named_changes(overrides, expected):
    assert changed(overrides) == expected


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["optimizer.learning_rat=1"],
         ("override optimizer.learning_rat=1: ", "did you mean learning_rate?")),
        ({"learnin_rate": 1}, ("override learnin_rate=1: ", "mean optimizer.learning_rate")),
        (["optimiser.lr=1"], ("unknown field",)),
        ({"every_steps": 3}, ("several sections", "evaluation.every_steps or checkpoint.every_")),
        (["verbose"], ("not of the form key=value", "learning_rate=1e-4")),
        (["=1"], ("not of the form key=value",)),
        (["lr=fast"], ("override lr=fast: optimizer.learning_rate: must be a number above 0",)),
        ({"lr": -1}, ("override lr=-1: optimizer.learning_rate", "value -1")),
        ({"train_batch_size": 1}, ("did you mean training.global_batch_size?",)),
        ({"method": "adalora"}, ("override method='adalora': method.type", "one of full, lora",
                               "adalora is another method")),
        ({"method": "loraa"}, ("method.type", "did you mean lora?")),
        (["method=full", "method.r=8"],
         ("override method.r=8: method.r: is a field of lora and qlora, not of full",
          "method.type=lora")),
        (["method.r=8", "method=full"], ("method.r: is a field of lora and qlora, not of full",)),
        ({"method": ["lora"]}, ("a section of `key: value` lines",)),
        (["seed.value=1"], ("seed", "must be a whole number")),
        (["model.id.x=1"], ("model.id", "must be text")),
        ({"global_batch_size": 9}, ("9 is not a multiple", "try global_batch_size=8")),
        ({"zzz": 1}, ("unknown field", "the sections are")),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_override_is_reported_by_its_own_words(overrides, says):
    with pytest.raises(ConfigError) as caught:
        training_config_from_dict(BASE, overrides)
    assert len(caught.value.problems) == 1, caught.value.message
    for fragment in says:
        assert fragment in caught.value.message


def test_an_override_mends_a_broken_line(tmp_path):
    path = tmp_path / "a.train.yaml"
    path.write_text("model: x\ndata: y\noptimizer:\n  learning_rate: fast\n")
    assert load_training_config(path, ["lr=1e-5"]).optimizer.learning_rate == 1e-5


def test_file_and_override_are_reported_together(tmp_path):
    path = tmp_path / "a.train.yaml"
    path.write_text("model: x\ndata: y\nsed: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_training_config(path, ["lr=0", "rr=1"])
    files = [problem.file for problem in caught.value.problems]
    assert files == ["override rr=1", "override lr=0", str(path)]


def test_the_base_is_left_as_it_was():
    before = repr(BASE)
    training_config_from_dict(
        BASE, {"method": {"r": 8}, "model": "x", "training_arguments.optim": "y"}
    )
    assert repr(BASE) == before


@settings(max_examples=50, deadline=None)
@given(
    rate=st.floats(1e-12, 10),
    steps=st.integers(1, 10**6),
    packing=st.booleans(),
    train=st.text(st.characters(codec="ascii", exclude_categories=("C",)), min_size=1),
)
def test_text_and_keyword_overrides_agree(rate, steps, packing, train):
    texts = [f"lr={rate!r}", f"training.max_steps={steps}", f"packing={packing}"]
    keywords = {"learning_rate": rate, "max_steps": steps, "packing": packing}
    assert training_config_from_dict(BASE, texts) == training_config_from_dict(BASE, keywords)
    assert training_config_from_dict(BASE, {"data.train": train}).data.train == train


@pytest.mark.parametrize("first", ["a", "data", "hooks", "training_arguments"])
def test_a_name_of_a_thousand_parts_is_a_problem(first):
    name = ".".join([first, *["a"] * 1000])
    for overrides in ({name: 1}, [f"{name}=1"]):
        with pytest.raises(ConfigError, match="a name of 1,001 parts, at most 32") as caught:
            changed(overrides)
        assert len(caught.value.message) < 300
