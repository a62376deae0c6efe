"""The parts of a run before the first row is scored: input, output, model, engine."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel import score_env
from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.config.problems import column_name
from llmops_kernel.config.reading.model_folder import is_adapter
from llmops_kernel.driver.hooks import load_functions
from llmops_kernel.errors import DataError, LLMOpsError, ModelError
from llmops_kernel.models.source import base_of_adapter, model_source
from llmops_kernel.score.engine_replicas import Deployment, code_of
from llmops_kernel.score.engines.checkpoint import (
    Read,
    Returned,
    check_adapter,
    returned_by,
    shapes_of,
)
from llmops_kernel.score.engines.prompts import PromptError
from llmops_kernel.score.engines.protocol import NAMES, EngineSpec, Job
from llmops_kernel.score.evaluate.row_scorer import RowScorer
from llmops_kernel.score.output_table import OutputColumns, columns_of, columns_of_schema
from llmops_kernel.score.prompts import PromptMaker
from llmops_kernel.score.scorer import HOOKS
from llmops_kernel.store.files import find
from llmops_kernel.store.record import RunSpec
from llmops_kernel.tables.files import open_url, table_files
from llmops_kernel.tables.parts import Plan, TableRow
from llmops_kernel.tables.reading import divide, read_part

_SAMPLED_ROWS = 200
"""Rows that are read to learn the names of the metrics."""


@dataclass(frozen=True)
class Table:
    """The input, and the columns of its output."""

    plan: Plan
    columns: OutputColumns


def roots(spec: RunSpec) -> tuple[Path, ...]:
    """Return where relative paths are looked for: as submitted, then on the client."""
    working_folder = (Path.cwd(),)
    return (*working_folder, Path(spec.workspace_root)) if spec.workspace_root else working_folder


def open_table(
    spec: RunSpec, config: ScoreConfig, *, on_count: Callable[[int], None] = lambda _: None
) -> Table:
    """Divide the input into parts and decide the output's columns. Raises DataError, HookError."""
    table_input = config.input
    files = table_files(table_input.path, roots=roots(spec), format_name=table_input.format)
    plan = divide(
        files, part_rows=config.output.part_rows, limit=table_input.limit, on_count=on_count
    )
    if not plan.parts:
        raise DataError(f"{table_input.path} has no rows.", remedy="check the file")
    first = read_part(plan.parts[0])
    _check_key(table_input.key, first.rows)
    metrics = _metric_names(config, first.rows[:_SAMPLED_ROWS])
    keep = (*table_input.columns, table_input.key) if table_input.columns else ()
    input_columns = (
        columns_of(first.rows, keep=keep)
        if first.table is None
        else columns_of_schema(first.table.schema, keep=keep)
    )
    columns = OutputColumns(
        input_columns.names,
        input_columns.types,
        metrics=metrics,
        is_json=config.task.type == "json",
        has_top_logprobs=config.task.top_k is not None,
    )
    return Table(plan, columns)


def _check_key(key: str, rows: list[TableRow]) -> None:
    readable = [row for row in rows if not row.error]
    if key and readable and all(key not in row.values for row in readable):
        have = ", ".join(map(column_name, list(readable[0].values)[:8]))
        raise DataError(
            f"The input has no column {key!r} (it has {have}).", remedy="correct input.key"
        )


def _metric_names(config: ScoreConfig, rows: list[TableRow]) -> tuple[str, ...]:
    """Return the names of the row metrics, as the first rows have them.

    Raises DataError when none of them has a prompt, or none can be measured: then nothing would
    be scored.
    """
    file = config.hooks.file
    hooks = load_functions(Path(file), HOOKS) if file else {}
    maker, scorer = PromptMaker(config, hooks), RowScorer(config, hooks.get("score_row"))
    names: dict[str, None] = {}
    failure: LLMOpsError | None = None
    num_prompts = num_measured = 0
    for row in rows:
        if row.error:
            continue
        try:
            prepared = maker(row.values)
            num_prompts += 1
            names |= dict.fromkeys(scorer.names_of(prepared.reference, row.values))
            num_measured += 1
        except LLMOpsError as error:
            failure = failure or error
    if not num_measured and failure is not None:
        lack = "can be measured" if num_prompts else "has a prompt"
        raise DataError(
            f"None of the first {len(rows)} rows {lack}. The first one: {failure.message}",
            remedy=failure.remedy or "check prompt in the config against the input's columns",
        ) from failure
    return tuple(names)


def columns_json(columns: OutputColumns) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(asdict(columns)))
    return data


def columns_from(data: dict[str, Any]) -> OutputColumns:
    return OutputColumns(
        names=tuple(data["names"]),
        types=tuple(data["types"]),
        metrics=tuple(data["metrics"]),
        is_json=bool(data["is_json"]),
        has_top_logprobs=bool(data.get("has_top_logprobs")),
    )


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The engine that runs, and the explanation of the choice."""

    deployment: Deployment
    label: str
    """`vLLM`, for the screen."""
    warning: str = ""
    remedy: str = ""


# --- What the model returns, and whether the task asks for that ---


_TEXT = Returned()
_TASKS = {
    "text": "generate, classify (with task.choices), json, logprob and embed",
    "labels": "classify (without task.choices)",
    "value": "value",
    "embedding": "embed",
}
"""What a model returns -> the tasks that it can do."""
_WORDS = {
    "text": "writes text",
    "labels": "returns labels",
    "value": "returns a number",
    "embedding": "returns vectors",
}


def model_returns(spec: RunSpec, config: ScoreConfig, adapter: str) -> Returned:
    """Return what the model's files, or the adapter's, say that it returns.

    The files of a hub id are asked for only by tasks that another class of model could do. Raises
    ModelError where the task asks for something else.
    """
    task, cache = config.task, Path(spec.cache_root) if spec.cache_root else None
    source = model_source(config.model.id, roots=roots(spec), cache=cache)
    is_other = task.type in ("embed", "value") or (task.type == "classify" and not task.choices)
    is_here = "://" in source or Path(source).is_dir()
    base = _reader(source, config.model.revision) if is_here or is_other else lambda _: None
    returned = returned_by(_reader(adapter), base) if adapter else returned_by(base)
    kinds = {"value": ("value",), "embed": ("text", "embedding"), "classify": ("labels",)}
    accepted = ("text",) if task.choices else kinds.get(task.type, ("text",))
    what = f"The adapter {adapter}" if adapter else f"The model {config.model.id}"
    if config.engine.type not in (*NAMES, "auto"):  # An engine of the user's, for any model.
        return returned
    if returned.kind not in accepted:
        needs = "without task.choices " if task.type == "classify" and not task.choices else ""
        raise ModelError(
            f"{what} {_WORDS[returned.kind]}, which the task {task.type} {needs}does not ask for.",
            remedy=f"it can do {_TASKS[returned.kind]}; or name another model",
        )
    if returned.kind == "value" and returned.width > 1:
        raise ModelError(
            f"{what} returns {returned.width} numbers, and the task value is of one.",
            remedy="train a model for each of them, or use Transformers'"
            " AutoModelForSequenceClassification, which returns all",
        )
    if returned.is_multi_label and "calibration" in config.evaluation.metrics:
        raise ModelError(
            f"{what} returns any number of labels, and calibration is of one choice.",
            remedy="take calibration out of evaluation.metrics; f1 and exact_match work",
        )
    return returned


def _reader(source: str, revision: str | None = None) -> Read:
    """Return a function that reads the JSON files of a folder, a URL or a hub id."""

    def read(name: str) -> Any:
        try:
            if "://" in source:
                files, path = open_url(source)
                return json.loads(files.cat_file(f"{path.rstrip('/')}/{name}"))
            if Path(source).is_dir():
                return json.loads((Path(source) / name).read_text())
            from huggingface_hub import hf_hub_download

            return json.loads(Path(hf_hub_download(source, name, revision=revision)).read_text())
        except LLMOpsError:
            raise
        except Exception:  # Each kind of store has errors of its own; the engine names them.
            return None

    return read


def job_of(config: ScoreConfig, *, adapter: str, returned: Returned = _TEXT) -> Job:
    """Return what all rows have in common; `returned`: what the model's files say of it."""
    sampling, task = config.sampling, config.task
    side = task.side or ("query" if config.prompt.reference else "document")
    return Job(
        task=task.type,
        choices=task.choices,
        labels=() if task.choices else returned.labels,
        is_multi_label=returned.is_multi_label,
        encoder=returned.encoder_of(side) if task.type == "embed" else None,
        json_schema="" if task.json_schema is None else json.dumps(task.json_schema),
        top_logprobs=task.top_k or 0,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=sampling.max_tokens,
        stop=sampling.stop,
        seed=sampling.seed,
        adapter=adapter,
        adapter_version=model_version(adapter) if "://" in adapter else "",
    )


def engine_choice(
    spec: RunSpec,
    config: ScoreConfig,
    *,
    num_gpus: float,
    num_nodes: int,
    score_python: str,
    returned: Returned = _TEXT,
) -> EngineChoice:
    """Decide where the model runs. Raises DataError for an engine that is not installed.

    `num_gpus`, `num_nodes`: of the cluster. `score_python`: interpreter of vLLM's own environment;
    empty: there is none. An image that has vLLM needs none. `returned`: what the model returns.
    """
    settings = config.engine
    only = _needs_transformers(config, returned)
    if only and settings.type == "vllm":
        raise ModelError(f"engine.type is vllm, and {only}.", remedy=_without_vllm(returned))
    type_name = "transformers" if only and settings.type == "auto" else settings.type
    kind, python, warning = _engine_type(type_name, score_python=score_python)
    engine = _engine_spec(spec, config, kind, has_gpus=num_gpus > 0, returned=returned)
    return EngineChoice(
        deployment=Deployment(
            spec=engine,
            keep_s=settings.keep_s,
            on_node=math.ceil(settings.replicas / max(1, num_nodes)),
            python=python,
            code=code_of(engine),
            run=spec.run_id,
        ),
        label={"vllm": "vLLM", "transformers": "Transformers"}.get(kind, kind),
        warning=warning,
        remedy="`llmops score-env` makes vLLM's environment on this machine" if warning else "",
    )


def _needs_transformers(config: ScoreConfig, returned: Returned) -> str:
    """Return why vLLM cannot be the engine of this model; empty where it can."""
    if returned.kind in ("labels", "value"):
        return "it is used here for texts and vectors, not for labels and numbers"
    if returned.encoder is not None and config.model.adapter:
        return "it cannot make vectors with an adapter that is apart from its base"
    return ""


def _without_vllm(returned: Returned) -> str:
    if returned.kind == "embedding":
        return (
            "`llmops export RUN --to merged` makes a model for vLLM of it; or set engine.type to"
            " transformers"
        )
    return "set engine.type to transformers, or leave it out"


def _engine_spec(
    spec: RunSpec, config: ScoreConfig, kind: str, *, has_gpus: bool, returned: Returned
) -> EngineSpec:
    settings = config.engine
    cache = Path(spec.cache_root) if spec.cache_root else None
    model = model_source(config.model.id, roots=roots(spec), cache=cache)
    encoder = returned.encoder
    return EngineSpec(
        type=kind,
        model=model,
        version=model_version(model),
        revision=config.model.revision,
        dtype=config.model.dtype,
        trust_remote_code=config.model.trust_remote_code,
        tensor_parallel=settings.tensor_parallel,
        max_model_len=settings.max_model_len or (encoder.max_length if encoder else None),
        batch_size=settings.batch_size,
        gpu_memory=settings.gpu_memory,
        num_gpus=settings.tensor_parallel if has_gpus else 0,
        max_lora_rank=_LORA_RANK,
        embeds=config.task.type == "embed",
        auto_class=returned.auto_class,
        head=dict(returned.head),
        pooling=encoder.pooling if encoder and kind == "vllm" else "",
        is_normalized=encoder is None or encoder.is_normalized or kind != "vllm",
        options=dict(settings.options),
    )


def _engine_type(kind: str, *, score_python: str) -> tuple[str, str, str]:
    """Return the engine's type, the interpreter it needs (empty: the job's), and a warning."""
    has_vllm = importlib.util.find_spec("vllm") is not None
    if kind == "auto" and not has_vllm and not score_python:
        slower = "vLLM is not installed, so Transformers gives the answers, which is slower."
        return "transformers", "", slower
    if kind not in ("auto", "vllm"):
        return kind, "", ""
    if not has_vllm and not score_python:
        raise DataError(
            "engine.type is vllm, which is not installed on the cluster.",
            remedy="`llmops score-env` makes its environment on this machine; on Kubernetes use an"
            " image with vLLM; or set engine.type to transformers",
        )
    return "vllm", "" if has_vllm else score_python, ""


_LORA_RANK = 64
"""Rank of each engine, also where this job has no adapter: the next job of a model may have one,
and both then share the engine. Costs some megabytes."""


def base_apart(spec: RunSpec, config: ScoreConfig) -> ScoreConfig:
    """Return the config with base and adapter where model.id is an adapter's folder.

    Raises ModelError where the base is not on this node.
    """
    model = config.model
    folder = None if model.adapter or "://" in model.id else find(model.id, roots(spec))
    if folder is None or not is_adapter(folder):
        return config
    cache = Path(spec.cache_root) if spec.cache_root else None
    name, revision, _ = base_of_adapter(folder, roots=roots(spec), cache=cache)
    both = {"id": name, "revision": revision, "adapter": str(folder)}
    return config.model_copy(update={"model": model.model_copy(update=both)})


def adapter_folder(spec: RunSpec, adapter: str) -> str:
    """Return the adapter as the engine's node sees it. Raises DataError."""
    if not adapter or "://" in adapter:
        return adapter
    folder = find(adapter, roots(spec))
    if folder is None or not (folder / "adapter_config.json").exists():
        missing = "does not exist" if folder is None else "has no adapter_config.json"
        raise DataError(
            f"The adapter {adapter} {missing}.",
            remedy="name the output folder of a LoRA run in model.adapter, or the run in model.run",
        )
    return str(folder.resolve())


def check_adapter_base(spec: EngineSpec, adapter: str) -> None:
    """Raise ModelError for an adapter of another base, where the files of both say so.

    The engine looks again: here only what is certain is refused. Files behind a URL are not read,
    names of a checkpoint may not be those of the loaded model, and packed weights have other
    shapes.
    """
    model = Path(spec.model)
    if not adapter or "://" in adapter or spec.type not in NAMES or not model.is_dir():
        return
    try:
        config = json.loads((model / "config.json").read_text())
        is_packed = "quantization_config" in config
        base = {} if is_packed else shapes_of(model)
        check_adapter(adapter, base, spec.model, is_complete=False)
    except (OSError, ValueError):
        return
    except PromptError as error:
        raise ModelError(
            f"No row can be scored: {error}.",
            remedy="name an adapter of this model in model.adapter, or the base of this adapter in"
            " model.id",
        ) from error


# --- Versions of a model or an adapter, without reading it ---


_KINDS = frozenset(
    {".safetensors", ".bin", ".pt", ".gguf", ".json", ".model", ".jinja", ".txt", ".py"}
)
"""Suffixes of weights, configs, tokenizers, chat templates and code: all parts of a model."""
_NOT_THE_MODEL = frozenset({"trainer_state.json", "training_args.bin"})
_STAMPS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "created")
Mark = tuple[str, int, str]


def model_version(source: str) -> str:
    """Return twelve hex digits of the files' names, sizes and times of change.

    Empty for a hub id, whose revision says what it is, and where the files cannot be listed: the
    engine says what is wrong with them.
    """
    try:
        marks = sorted(_url_marks(source) if "://" in source else _folder_marks(Path(source)))
    except Exception:  # Each kind of store has errors of its own.
        return ""
    return hashlib.sha256(repr(marks).encode()).hexdigest()[:12] if marks else ""


def _folder_marks(folder: Path) -> Iterator[Mark]:
    for file in folder.iterdir() if folder.is_dir() else ():
        if _is_of_model(file.name) and file.is_file():
            stat = file.stat()
            yield file.name, stat.st_size, str(stat.st_mtime_ns)


def _url_marks(url: str) -> Iterator[Mark]:
    if url.startswith("hf://"):
        return
    files, path = open_url(url)
    for name, info in files.find(path, detail=True).items():
        if _is_of_model(PurePosixPath(name).name):
            stamp = next((str(info[key]) for key in _STAMPS if info.get(key)), "")
            yield name, int(info.get("size") or 0), stamp


def _is_of_model(name: str) -> bool:
    is_known = PurePosixPath(name).suffix.lower() in _KINDS and name not in _NOT_THE_MODEL
    return is_known and not name.startswith((".", "_"))


# --- The place of vLLM's own environment on this node ---


def python_of(cache_root: str) -> str:
    """Return its interpreter; empty if there is none. `cache_root`: the client's cache folder."""
    for root in (Path(cache_root), None) if cache_root else (None,):
        if score_env.ready(root):
            return str(score_env.python(root))
    return ""
