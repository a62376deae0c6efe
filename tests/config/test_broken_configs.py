"""Each way to get a config wrong: the line, and words that say what would work."""

import pickle
from dataclasses import dataclass

import pytest

from llmops_kernel.errors import ConfigError
from tests.configs import load_training_config

BASE = "model: tiny-llama\ndata: rows.jsonl\n"  # two lines; what a case adds starts on line 3


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    line: int | None
    says: tuple[str, ...]
    base: str = BASE


CASES = [
    # not YAML, or not a config at all
    Case("empty", "", None, ("empty",), ""),
    Case("only comments", "# nothing yet\n", None, ("empty",), ""),
    Case("a list", "- model: x\n", None, ("a list where `key: value` lines",), ""),
    Case("a text", "hello\n", None, ("a text", "hello"), ""),
    Case("no space after the only colon", "seed:42\n", None, ("a text", "space after"), ""),
    Case("tab", "training:\n\tmax_steps: 5\n", 4, ("tab", "column 1", "spaces")),
    Case("no space", "optimizer:\n  weight_decay: 1\n  learning_rate:1e-4\n", 5,
         ("no space after the colon", "write `learning_rate: 1e-4`")),
    Case("two colons", "data: a: b\n", 1, ("a second `:`", "column 8", "quotes"), ""),
    Case("open list", "report_to: [wandb\n", 3, ("list that is not closed", "[a, b]")),
    Case("open quote", 'name: "x\n', 3, ("quote that is not closed",)),
    Case("indentation", "training:\n    max_steps: 5\n  num_epochs: 2\n", 5,
         ("does not fit the lines above",)),
    Case("two documents", "---\nseed: 1\n", 3, ("second document",)),
    Case("python tag", "seed: !!python/object/apply:os.getcwd []\n", 3, ("`!` tags",)),
    Case("star", "name: *x\n", 3, ("begins with `*`", "quotes")),
    Case("alias in itself", "training_arguments: &a {optim_args: *a}\n", 3,
         ("contains itself",)),
    Case("control character", "name: a\x07b\n", 3, ("U+0007", "delete")),
    # keys
    Case("misspelt leaf", "optimizer:\n  learning_rat: 1e-4\n", 4,
         ("optimizer.learning_rat: unknown key (value 1e-4)", "did you mean learning_rate?")),
    Case("misspelt section", "optimiser:\n  learning_rate: 1e-4\n", 3,
         ("optimiser", "did you mean optimizer?")),
    Case("in the wrong place", "loss_on: answer\n", 3, ("belongs under data:",)),
    Case("in the wrong section", "training:\n  learning_rate: 1\n", 4,
         ("learning_rate belongs under optimizer:",)),
    Case("top level key in a section", "training:\n  seed: 1\n", 4, ("at the top level",)),
    Case("transformers' word", "training:\n  auto_find_batch_size: false\n", 4,
         ("did you mean micro_batch_size?",)),
    Case("no size", "training: {micro_batch_size: 0}\n", 3,
         ("must be a whole number of at least 1 or auto",)),
    Case("rows that workers do not share evenly",
         "training: {micro_batch_size: auto, global_batch_size: 5}\nparallelism: {num_workers: 2}"
         "\n",
         3, ("5 is not a multiple of num_workers=2", "try global_batch_size=4")),
    Case("memory that decides the loss", "training: {micro_batch_size: auto}\nobjective: embed\n",
         3, ("compares the rows of a micro batch", "set a number")),
    Case("a trainer's word", "data:\n  train: x\n  block_size: 8\n", 4,
         ("did you mean max_length?",), base="model: tiny-llama\n"),
    Case("a further argument", "optimizer:\n  adam_epsilon: 1e-8\n", 4,
         ("adam_epsilon belongs under training_arguments:",)),
    Case("nothing like it", "hooks:\n  xyzzy: 1\n", 4, ("known here: file",)),
    Case("given twice", "seed: 1\nname: a\nseed: 2\n", 5,
         ("seed: given twice, on lines 3 and 5", "keep one")),
    Case("section twice", "optimizer:\n  weight_decay: 0\noptimizer:\n  warmup_steps: 1\n", 5,
         ("optimizer: given twice, on lines 3 and 5",)),
    # missing
    Case("no model", "data: rows.jsonl\n", None, ("model: this section is missing", "id: ..."), ""),
    Case("no data", "model: x\n", None, ("data: this section is missing", "train: ..."), ""),
    Case("empty model", "model:\ndata: x\n", 1, ("model.id: is missing", "catalogue"), ""),
    # types
    Case("text for a number", "optimizer:\n  learning_rate: fast\n", 4,
         ("must be a number above 0 (value fast)", "the default is 2e-4")),
    Case("unit", "data:\n  train: x\n  max_length: 512 tokens\n", 5,
         ("a whole number of at least 8", "the bare number, 512"), "model: x\n\n"),
    Case("thousands", 'training:\n  max_steps: 1,000\n', 4, ("the bare number, 1000",)),
    Case("part of a step", "training:\n  max_steps: 2.5\n", 4, ("whole number", "for example 2")),
    Case("yes for a number", "training:\n  max_steps: yes\n", 4, ("whole number", "value yes")),
    Case("null for a number", "seed: null\n", 3, ("whole number", "the default is 42")),
    Case("number for a flag", "parallelism:\n  use_gpu: 7\n", 4, ("true or false or auto",)),
    Case("list for a section", "training: [1, 2]\n", 3, ("a section of `key: value` lines",)),
    Case("flag for a section", "method: yes\n", 3, ("one of full, lora, qlora (value yes)",)),
    Case("text for a mapping", "training_arguments: fast\n", 3, ("mapping of `key: value`",)),
    Case("number for a list", "method:\n  target_modules: 3\n", 4, ("text or a list",)),
    Case("mapping for a value", "seed:\n  value: 3\n", 3, ("seed: must be a whole number",)),
    # ranges and choices
    Case("zero", "optimizer:\n  learning_rate: 0\n", 4, ("a number above 0 (value 0)",)),
    Case("infinite", "optimizer:\n  learning_rate: .inf\n", 4, ("a number above 0",)),
    Case("not a number", "optimizer:\n  weight_decay: .nan\n", 4, ("a number of at least 0",)),
    Case("dropout", "method:\n  lora_dropout: 1\n", 4, ("at least 0 and below 1 (value 1)",)),
    Case("name", "name: My Run\n", 3, ("lower-case letters", "write for example my-run")),
    Case("method", "method: lorra\n", 3, ("method.type", "one of full, lora", "mean lora?")),
    Case("another method", "method: adalora\n", 3,
         ("method.type", "one of full, lora", "adalora is another method")),
    Case("near miss of another method", "method: adalor\n", 3,
         ("method.type", "adalora is another method")),
    Case("near miss of qlora", "method: qlor\n", 3, ("method.type", "did you mean qlora?")),
    Case("option as a method", "method: dora\n", 3, ("set type: lora and use_dora: true",)),
    Case("unknown method", "method: magic\n", 3, ("method.type", "one of full, lora")),
    Case("field of another method", "method: {type: full, r: 16}\n", 3,
         ("method.r: is a field of lora and qlora, not of full (value 16)",
          "set method.type=lora")),
    Case("misspelt field of a method", "method:\n  type: full\n  rr: 16\n", 5,
         ("method.rr: unknown key",)),
    Case("strategy", "parallelism:\n  strategy: fsdp2\n", 4, ("did you mean fsdp?",)),
    Case("strategy by number", "parallelism:\n  strategy: 3\n", 4, ("did you mean zero3?",)),
    Case("dtype", "model: {id: x, dtype: fp16}\ndata: x\n", 1,
         ("model.dtype", "did you mean bfloat16?"), ""),
    Case("scheduler", "optimizer:\n  lr_scheduler_type: cosin\n", 4, ("did you mean cosine?",)),
    # between fields
    Case("batch", "training: {micro_batch_size: 4, global_batch_size: 10}\n", 3,
         ("10 is not a multiple of micro_batch_size=4 x num_workers=1", "global_batch_size=8")),
    Case("offload params", "parallelism: {strategy: zero2, offload_params: true}\n", 3,
         ("only ZeRO-3", "not zero2", "strategy=zero3")),
    Case("offload optimizer", "parallelism: {strategy: ddp, offload_optimizer: true}\n", 3,
         ("only ZeRO", "not ddp", "strategy=zero2")),
    Case("columns", "data:\n  train: x\n  columns: {instrution: q}\n", 5,
         ("instrution is not a field", "did you mean instruction?"), "model: x\n\n"),
    Case("eval without rows", "evaluation:\n  every_steps: 5\n", 4,
         ("evaluation.every_steps", "data.eval is not set", "set data.eval", "evaluation.prompts")),
    Case("generate without rows", "evaluation:\n  generate: true\n", 4,
         ("evaluation.generate", "set data.eval")),
    Case("empty prompt", "evaluation:\n  prompts: ['']\n", 4, ("prompt 1 is empty",)),
    Case("generate plain text", "model: x\ndata: {train: x, eval: y, format: text}\n"
         "evaluation:\n  generate: yes\n", 4, ("no prompt", "data.format=chat"), ""),
    Case("flash in fp32", "model: {id: x, attention: flash_attention_2, dtype: float32}\n"
         "data: x\n", 1,
         ("bfloat16 only", "model.dtype is float32", "set model.dtype=bfloat16"), ""),
    Case("flash without GPU", "parallelism: {use_gpu: false}\ndata: x\nmodel:\n  dtype: bfloat16\n"
         "  id: x\n  attn_implementation: flash_attention_2\n", 6,
         ("needs a GPU", "attention=sdpa"), ""),
    Case("liger without GPU", "parallelism: {use_gpu: false}\nperformance: {fused_loss: true}\n", 4,
         ("needs a GPU", "performance.fused_loss=false")),
    Case("a field of an earlier release", "performance:\n  matmul: onednn\n", 4,
         ("performance.matmul", "delete it")),
    Case("streaming and packing", "data: {train: x, streaming: true, packing: true}\nmodel: x\n",
         1, ("data.packing is set", "remove data.packing"), ""),
    Case("streaming and a few rows", "data: {train: x, streaming: true, max_rows: 9}\nmodel: x\n",
         1, ("data.max_rows is set", "streaming=false"), ""),
    Case("streaming and loader processes", "data: {train: x, streaming: true}\nmodel: x\n"
         "training_arguments: {dataloader_num_workers: 2}\n",
         3, ("does not work with data.streaming", "remove dataloader_num_workers"), ""),
    Case("no padding twice", "data: {train: x, packing: true}\nmodel: x\n"
         "performance: {padding_free: true}\n", 3, ("packed", "padding_free=false"), ""),
    Case("performance mode", "performance: fast\n", 3, ("must be one of auto, off",)),
    Case("merge", "method: full\noutput:\n  merge_adapter: true\n", 5,
         ("method full has no adapter", "method.type=lora")),
    Case("targets in one text", "method:\n  target_modules: q_proj, v_proj\n", 4,
         ("write the list [q_proj, v_proj]",)),
    Case("tracker", "report_to: [wandbb]\n", 3, ("'wandbb'", "did you mean wandb?")),
    Case("our argument", "training_arguments:\n  learning_rate: 1\n", 4,
         ("training_arguments.learning_rate: cannot be set here", "set optimizer.learning_rate")),
    Case("our arguments by prefix", "training_arguments:\n  eval_steps: 3\n", 4,
         ("set evaluation.every_steps",)),
    Case("logging", "training_arguments:\n  logging_steps: 3\n", 4, ("recorded in the journal",)),
    Case("secret", "training_arguments:\n  hub_token: x\n", 4, ("HF_TOKEN",)),
    Case("misspelt argument", "training_arguments:\n  optimm: x\n", 4, ("did you mean optim?",)),
    Case("old argument", "training_arguments:\n  warmup_ratio: 0.1\n", 4,
         ("set optimizer.warmup_steps",)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_mistake_is_reported_once_with_place_and_remedy(case: Case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.train.yaml").write_text(case.base + case.text, newline="")
    with pytest.raises(ConfigError) as caught:
        load_training_config("a.train.yaml")
    assert len(caught.value.problems) == 1, caught.value.message
    for fragment in case.says:
        assert fragment in caught.value.message
    where = "a.train.yaml:" + (f"{case.line}: " if case.line else " ")
    assert caught.value.message.startswith(where)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.train.yaml"]


def test_there_are_at_least_forty_cases_with_their_own_names():
    assert len({case.name for case in CASES}) == len(CASES) >= 40


ALL_AT_ONCE = """\
name: My Run
model: tiny-llama
data:
  train: rows.jsonl
  packing: 5
optimizer:
  learning_rat: 1e-4
parallelism:
  offload_params: yes
training:
  global_batch_size: 10
  max_steps: many
seed: 1
seed: 2
"""


def test_all_mistakes_come_at_once_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "many.train.yaml"
    path.write_text(ALL_AT_ONCE)
    with pytest.raises(ConfigError) as caught:
        load_training_config(path)
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (1, "name"),
        (5, "data.packing"),
        (7, "optimizer.learning_rat"),
        (9, "parallelism.offload_params"),
        (11, "training.global_batch_size"),
        (12, "training.max_steps"),
        (14, "seed"),
    ]
    assert len(caught.value.message.splitlines()) == 7


def test_a_rule_is_silent_while_a_field_it_reads_is_wrong(tmp_path):
    path = tmp_path / "a.train.yaml"
    path.write_text(BASE + "training:\n  micro_batch_size: four\n  global_batch_size: 10\n")
    with pytest.raises(ConfigError) as caught:
        load_training_config(path)
    assert [problem.path for problem in caught.value.problems] == ["training.micro_batch_size"]


def test_a_missing_file_names_its_neighbours(tmp_path):
    (tmp_path / "lora.train.yaml").write_text(BASE)
    (tmp_path / "notes.yaml").write_text("x")
    with pytest.raises(ConfigError, match=r"no such file; did you mean lora\.train\.yaml\?"):
        load_training_config(tmp_path / "lore.train.yaml")
    with pytest.raises(ConfigError, match=r"no such file; there are: lora\.train\.yaml"):
        load_training_config(tmp_path / "other.yml")
    with pytest.raises(ConfigError, match=r"folder .* does not exist either"):
        load_training_config(tmp_path / "no" / "lora.train.yaml")
    with pytest.raises(ConfigError, match=r"is a folder, not a file; .*lora\.train\.yaml"):
        load_training_config(tmp_path)


def test_latin1_is_refused_with_the_line(tmp_path):
    path = tmp_path / "a.train.yaml"
    path.write_bytes(BASE.encode() + "name: café\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"a\.train\.yaml:3: not UTF-8 text"):
        load_training_config(path)


def test_problems_survive_a_trip_between_processes(tmp_path):
    path = tmp_path / "a.train.yaml"
    path.write_text(BASE + "seed: null\nsed: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_training_config(path)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.problems == caught.value.problems
    assert [problem.to_dict()["value"] for problem in copy.problems] == ["null", "1"]


def test_a_long_value_is_cut():
    from llmops_kernel.config.problems import Problem

    assert len(Problem(path="a", message="b", value="x" * 500).shown) == 60
