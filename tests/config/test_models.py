"""What holds for all fields, and the lists that must agree with other packages."""

import ast
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

from llmops_kernel.config.assist.schema import schema_of
from llmops_kernel.config.assist.template import cluster_template, training_template
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.models.fields import compact, spec_of
from llmops_kernel.config.models.methods import LoraMethod, QloraMethod
from llmops_kernel.config.models.objectives import OBJECTIVES
from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.names import ALIASES, OWNED, OWNED_PREFIXES, TRACKERS, TRAINING_ARGUMENTS
from llmops_kernel.config.reading.document import flatten, parse_value
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ConfigError
from tests.configs import load_training_config

ROOT = Path(__file__).parents[2]
MODELS = (TrainingConfig, ClusterTemplate)


def fields(section):
    for name, field in section.fields.items():
        if field.section is None:
            yield f"{section.model.__name__}.{name}", field
        else:
            yield from fields(field.section)


FIELDS = [pair for model in MODELS for pair in fields(spec_of(model))]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=[name for name, _ in FIELDS])
def test_every_field_is_described_in_words(name, field):
    assert field.about, f"{name} has no description"
    assert field.about.endswith("."), f"{name}: write a sentence"
    assert field.expected != "a value", f"{name}: fields.py has no words for its type"


def test_the_template_names_every_field_and_loads_as_the_defaults(tmp_path):
    path = tmp_path / "new.train.yaml"
    text = training_template()
    path.write_text(text)
    config = load_training_config(path)
    written = {leaf for leaf in spec_of(TrainingConfig).leaves if f"{leaf[-1]}: " in text}
    elsewhere = {"deepspeed", "fsdp", "nvme_path", *QloraMethod.model_fields}
    elsewhere -= set(LoraMethod.model_fields)
    elsewhere |= {name for each in OBJECTIVES for name in each.model_fields if name != "type"}
    # Fields of other methods, strategies and objectives than the chosen ones.
    assert written == {leaf for leaf in spec_of(TrainingConfig).leaves if leaf[-1] not in elsewhere}
    assert config == TrainingConfig(model="SmolLM2-135M-Instruct", data="data/train.jsonl")
    assert flatten(parse_value(text)) == flatten(config)
    assert max(map(len, text.splitlines())) <= 100


def test_the_template_carries_the_answers(tmp_path):
    path = tmp_path / "new.train.yaml"
    path.write_text(
        training_template(
            model="tiny-llama", train="my: rows #1.jsonl", method="full", lr=3e-5, name="yes"
        )
    )
    config = load_training_config(path)
    assert config.model.id == "tiny-llama"
    assert config.data.train == "my: rows #1.jsonl"
    assert config.method.type == "full"
    assert config.optimizer.learning_rate == 3e-5
    assert config.name == "yes"


def test_the_template_refuses_wrong_answers():
    with pytest.raises(ConfigError, match="adalora is another method, which is not available here"):
        training_template(method="adalora")
    with pytest.raises(ConfigError, match="unknown field"):
        training_template(modell="x")


@pytest.mark.parametrize(
    ("value", "text"),
    [(2e-4, "2e-4"), (0.999, "0.999"), (1.5e-7, "1.5e-7"), (1e6, "1e6"), (0.0, "0.0"),
     (1.0, "1.0"), (None, "null"), (True, "true"), ((), "[]"), ({}, "{}"), ("a", "a"), (42, "42")],
)  # fmt: skip
def test_defaults_are_written_as_by_hand(value, text):
    assert compact(value) == text


def test_the_schema_takes_what_the_loader_takes():
    schema = schema_of(TrainingConfig)
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid(parse_value(training_template()))
    assert valid({"model": "tiny-llama", "data": "x", "method": "full", "checkpoint": 5})
    assert not valid({"model": "tiny-llama", "data": "x", "method": "adalora"})
    assert not valid({"model": "tiny-llama", "data": "x", "sed": 1})
    assert not valid({"model": "tiny-llama"})
    assert schema["properties"]["method"]["description"].startswith("Fields: type, r,")


def test_aliases_lead_to_fields():
    paths = {".".join(leaf) for leaf in spec_of(TrainingConfig).leaves}
    endings = {leaf[-1] for leaf in spec_of(TrainingConfig).leaves}
    assert [name for name, path in ALIASES.items() if path not in paths | endings] == []


def test_our_lists_are_those_of_the_installed_transformers():
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        pytest.skip("transformers is not installed")
    folder = Path(spec.origin).parent
    (arguments,) = (
        node
        for node in ast.parse((folder / "training_args.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments"
    )
    names = {node.target.id for node in arguments.body if isinstance(node, ast.AnnAssign)}
    assert names == TRAINING_ARGUMENTS
    source = (folder / "integrations" / "integration_utils.py").read_text()
    assert [name for name in TRACKERS if f'"{name}": ' not in source] == []


def test_what_the_worker_sets_itself_is_refused():
    """Such an argument would otherwise undo what `trainer.py` and the strategies set."""
    folder = ROOT / "llmops_kernel" / "train"
    files = [folder / "trainer.py", *(folder / "parallelism").glob("*.py")]
    trees = [ast.parse(file.read_text()) for file in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    # `optim`: with optimizer.type=adamw it names any other one; with another type it is refused.
    free = {"ddp_find_unused_parameters", "dataloader_pin_memory", "optim"}
    ours = {name for name in TRAINING_ARGUMENTS & texts if name not in free}
    assert ours > {"learning_rate", "output_dir", "deepspeed", "fsdp", "save_strategy", "seed"}
    assert [n for n in ours if n not in OWNED and not n.startswith(tuple(OWNED_PREFIXES))] == []


def test_the_catalogue_is_the_one_that_is_built():
    source = (ROOT / "llmops_kernel" / "models" / "catalogue.py").read_text()
    assert all(f'"{name}": _' in source for name in CATALOGUE)
    assert source.count('": _') == len(CATALOGUE)


def test_the_shipped_cluster_template_is_the_generated_one():
    path = ROOT / "cluster_templates" / "local.yaml"
    assert path.read_text() == cluster_template()
    assert load_cluster_template(path) == ClusterTemplate()


def test_the_local_cluster_needs_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_cluster_template("local") == ClusterTemplate()
    assert load_cluster_template() == ClusterTemplate()


def test_a_cluster_template_by_name_and_by_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster_templates").mkdir()
    path = tmp_path / "cluster_templates" / "big_one.yaml"
    path.write_text("num_cpus: 8\nenv:\n  OMP_NUM_THREADS: 1\n  DEBUG: no\n")
    by_name, by_path = load_cluster_template("big_one"), load_cluster_template(path)
    assert by_name == by_path
    assert by_name.name == "big-one"
    assert by_name.env == {"OMP_NUM_THREADS": "1", "DEBUG": "no"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num_cpu: 2\n", ("1: num_cpu: unknown key (value 2)", "did you mean num_cpus?")),
        ("warm:\n  keep: lots\n", ("2: warm.keep: must be a size such as `8GiB` (value lots)",)),
        ("num_gpus: -1\n", ("1: num_gpus: must be a whole number of at least 0 or null",)),
        ("provider: slurm\n", ("1: provider: must be one of local, kuberay (value slurm)",)),
        ("dashboard_port: 99999\n", ("at least 1 and at most 65535",)),
        ("object_store_memory_bytes: 1000\n", ("at least 78643200",)),
        ("inherit_env: ['*']\n", ("1: inherit_env: must be names of variables", "MY_*")),
        ("env: [A]\n", ("mapping of `key: value` lines",)),
        ("stop_wait_s: 2m\n", ("the bare number, 2",)),
        ("", ("empty",)),
    ],
)
def test_a_broken_cluster_template(text, says, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_cluster_template(path)
    assert len(caught.value.problems) == 1
    for fragment in says:
        assert fragment in caught.value.message


def test_an_unknown_cluster_template_names_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"value locl\); did you mean local\?"):
        load_cluster_template("locl")
    with pytest.raises(ConfigError, match=r"known: gcp-h100, .*local.*; or give a file's path"):
        load_cluster_template("atlantis")
    with pytest.raises(ConfigError, match="no such file"):
        load_cluster_template("x/y.yaml")


def test_a_name_of_an_earlier_release_is_read(tmp_path):
    path = tmp_path / "old.train.yaml"
    path.write_text("model: {id: tiny-llama, attn_implementation: eager}\ndata: rows.jsonl\n")
    config = load_training_config(path)
    assert config.model.attention == "eager"
    record = config.model_dump(mode="json")
    record["model"]["attn_implementation"] = record["model"].pop("attention")
    assert TrainingConfig.model_validate(record) == config
    written = flatten(load_training_config(path, ["model.attention=sdpa"]))
    assert written["model.attention"] == "sdpa"
