"""Checks what a config names by using it as the workers will: some rows, the hooks, the hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.objective_rows import label_names
from llmops_kernel.config.problems import did_you_mean, listed
from llmops_kernel.errors import HookError, LLMOpsError, ModelError
from llmops_kernel.models import catalogue
from llmops_kernel.models.answer_spans import template_warnings
from llmops_kernel.models.source import tokenizer_of
from llmops_kernel.store.files import find
from llmops_kernel.store.preview_job import CheckedSource, DataCheck, Finding, PreviewJob
from llmops_kernel.train.data.preview.look import Formatted
from llmops_kernel.train.data.preview.report import leaks
from llmops_kernel.train.data.preview.work import Inspection, SourceInspector, hooks_of
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.tokenizer import load_tokenizer

Progress = Callable[[str], None]
_ALL_ROWS = ("hooks.file", "data.format", "data.columns")
"""Fields without which no row can be formatted."""


@dataclass(frozen=True)
class _NamedSource:
    """A source of the config."""

    path: str
    """The field that names it."""
    source: str
    data: DataConfig
    is_eval: bool = False


@dataclass
class _Check:
    job: PreviewJob
    config: TrainingConfig
    progress: Progress
    findings: list[Finding] = field(default_factory=list)

    def add(self, path: str, error: LLMOpsError, *, is_warning: bool = False) -> None:
        self.findings.append(
            Finding(
                path=path,
                level="warning" if is_warning else "problem",
                message=error.message.strip().rstrip("."),
                remedy=error.remedy,
            )
        )

    def note(self, path: str, message: str) -> None:
        self.findings.append(Finding(path=path, level="note", message=message))

    def is_skipped(self, *paths: str) -> bool:
        return any(path in self.job.skip for path in paths)


def checked(job: PreviewJob, progress: Progress = lambda _: None) -> DataCheck:
    """Return all that is found."""
    config = TrainingConfig.model_validate(job.config).with_rows_read()
    check = _Check(job, config, progress)
    hooks = _hooks(check)
    sources: list[CheckedSource] = []
    if hooks is not None and not check.is_skipped(*_ALL_ROWS):
        sources = _sources(check, hooks, _tokenizer(check, hooks))
    check.findings += _hub(check)
    return DataCheck(
        max_length=check.config.data.max_length,
        has_hook=hooks is not None and hooks.format_example is not None,
        sources=sources,
        findings=check.findings,
    )


def _hooks(check: _Check) -> Hooks | None:
    if check.is_skipped("hooks.file"):
        return None
    try:
        return hooks_of(check.config, Path(check.job.workspace))
    except HookError as error:
        check.add("hooks.file", error)
        return None


def _tokenizer(check: _Check, hooks: Hooks) -> Any:
    """Return the tokenizer if it is on this machine, else None."""
    config, name = check.config, check.config.model.id
    if check.is_skipped("model.id"):
        return None
    if catalogue.is_catalogue_name(name):
        check.progress(f"Loading the tokenizer of {name}; the first time its files are prepared")
    try:
        source, config = tokenizer_of(config, roots=(Path(check.job.workspace),), cache=None)
    except LLMOpsError as error:  # A package that only the cluster may have.
        check.add("model.id", error, is_warning=True)
        return None
    is_local, name = Path(source).is_dir(), config.model.id
    try:
        return load_tokenizer(source, config, only_local=True)
    except ModelError as error:
        if is_local:
            check.add("model.id", error, is_warning=hooks.build_model is not None)
        elif is_cached("model", name, config.model.revision):
            check.add("model.id", error, is_warning=True)
        if not is_local:
            check.note(
                "model.id",
                f"rows are not tokenised: the tokenizer of {name} is not on this machine",
            )
        return None


def _sources(check: _Check, hooks: Hooks, tokenizer: Any) -> list[CheckedSource]:
    inspector = SourceInspector(
        check.config,
        workspace=Path(check.job.workspace),
        hooks=hooks,
        tokenizer=tokenizer,
        rows=check.job.max_rows,
    )
    reports: list[CheckedSource] = []
    trained: list[Formatted] = []
    held_out: list[Formatted] = []
    is_whole = True
    for item in _named(check.config.data):
        if check.is_skipped(item.path) or _is_hub_id(check, item.source):
            continue
        source = _inspected(check, inspector, item)
        if source is None:
            continue
        rows = source.report_of_rows()
        if tokenizer is not None:
            rows = source.report(check.config.data.max_length)
        both = leaks(trained, source.rows) if item.is_eval and trained else None
        (held_out if item.is_eval else trained).extend(source.rows)
        is_whole = is_whole and not source.read.where
        reports.append(CheckedSource(path=item.path, rows=rows, leaks=both))
    if tokenizer is not None and any("messages" in part for item in trained for part in item.parts):
        check.findings += [
            Finding(path="model.id", level="warning", message=item.message, remedy=item.remedy)
            for item in template_warnings(tokenizer)
        ]
    check.findings += _of_targets(check.config, trained, held_out, is_whole=is_whole)
    return reports


def _of_targets(
    config: TrainingConfig,
    trained: list[Formatted],
    held_out: list[Formatted],
    *,
    is_whole: bool,
) -> Iterator[Finding]:
    """Yield what is to be said of labels and scores. `is_whole`: all rows were read."""
    settings: Any = config.objective
    if settings.type == "embed":
        yield from _of_scores(settings.loss_type, [*trained, *held_out])
    if settings.type != "classify" or not trained:
        return
    counts = Counter(name for row in trained for name in label_names(row.row.get("target")))
    known = set(settings.labels or counts)
    for path, rows in (("data.train", trained), ("data.eval", held_out)):
        unknown = {name for row in rows for name in label_names(row.row["target"])} - known
        if unknown and (settings.labels or is_whole):
            where = "objective.labels" if settings.labels else "the training rows"
            yield _problem(
                path,
                f"the label {sorted(unknown)[0]!r} is not among those of {where}",
                did_you_mean(sorted(unknown)[0], known) or f"known: {listed(sorted(known))}",
            )
    if len(known) == 1:
        yield _problem(
            "data.train",
            f"all rows have the label {next(iter(known))!r}",
            "a classifier needs at least two labels",
        )
    once = sorted(name for name, count in counts.items() if count == 1)
    if is_whole and once and len(known) > 1:
        yield Finding(
            path="data.train",
            level="warning",
            message=f"{counted(len(once), 'label')} on one training row only: {listed(once)}",
            remedy="give more rows of each label, or leave it out",
        )


def _of_scores(loss_type: str, rows: list[Formatted]) -> Iterator[Finding]:
    """Yield what is to be said of rows with and without a score of two texts."""
    num_scored = sum("target" in row.row for row in rows)
    if num_scored and loss_type != "cosine":
        yield _problem(
            "objective.loss_type",
            f"rows have a score, and {loss_type} learns from pairs without one",
            "set objective.loss_type=cosine",
        )
    elif loss_type == "cosine" and num_scored < len(rows):
        yield _problem(
            "objective.loss_type",
            "cosine learns a score, and rows have none",
            "give text1, text2 and score, or set objective.loss_type=infonce",
        )


def _problem(path: str, message: str, remedy: str) -> Finding:
    return Finding(path=path, level="problem", message=message, remedy=remedy)


def _named(data: DataConfig) -> Iterator[_NamedSource]:
    for number, source in enumerate(data.sources):
        path = f"data.train.{number}.path" if data.is_mixture else "data.train"
        yield _NamedSource(path, source.path, data.of(source))
    if data.eval is not None:
        yield _NamedSource("data.eval", data.eval, data, is_eval=True)


def _inspected(check: _Check, inspector: SourceInspector, item: _NamedSource) -> Inspection | None:
    check.progress(f"Reading rows of {item.source}")
    try:
        request = (
            inspector.evaluation_rows(item.data)
            if item.is_eval
            else inspector.training_rows(item.data)
        )
        return inspector.inspect(item.data, request)
    except HookError as error:
        check.add("hooks.file", error)
    except LLMOpsError as error:
        # Nodes of a cluster may have other credentials, packages and networks.
        is_elsewhere = "://" in item.source and isinstance(error.__cause__, OSError | ImportError)
        check.add(item.path, error, is_warning=is_elsewhere)
    return None


def _is_hub_id(check: _Check, source: str) -> bool:
    return Source(source, (Path(check.job.workspace),)).is_hub_id


def _hub(check: _Check) -> Iterator[Finding]:
    config = check.config
    name = config.model.id
    is_known = catalogue.is_catalogue_name(name) or "://" in name or check.is_skipped("model.id")
    if not is_known and find(name, (Path(check.job.workspace),)) is None:
        yield hub_finding("model.id", "model", name, config.model.revision, progress=check.progress)
    for item in _named(config.data):
        if not check.is_skipped(item.path) and _is_hub_id(check, item.source):
            yield hub_finding(item.path, "dataset", item.source, None, progress=check.progress)
            yield Finding(
                path=item.path,
                level="note",
                message=f"rows of the data set {item.source} are not read here:"
                " `llmops data CONFIG` downloads and shows them",
            )


# --- Models and data sets of the Hugging Face Hub ---


Kind = Literal["model", "dataset"]
_ANSWER_S = 5.0
_WORDS = {"model": "model", "dataset": "data set"}
_FILES = {"model": ("config.json",), "dataset": ("README.md", ".gitattributes")}


def hub_finding(
    path: str, kind: Kind, name: str, revision: str | None, *, progress: Callable[[str], None]
) -> Finding:
    """Return one sentence about a hub id; nothing that the hub answers is a problem.

    The nodes of a cluster may have another copy, another token and another network.
    """
    label = f"{_WORDS[kind]} {name!r}" + (f" (revision {revision})" if revision else "")
    if is_cached(kind, name, revision):
        return _note(path, f"the {label} is in this machine's cache of the Hugging Face Hub")
    from huggingface_hub import constants, is_offline_mode

    if is_offline_mode():
        return _warning(
            path,
            f"the {label} is not in this machine's cache, and HF_HUB_OFFLINE=1 forbids to ask the"
            " Hugging Face Hub",
            "the cluster's nodes need it in their cache, or HF_HUB_OFFLINE=0 and a network",
        )
    progress(f"Contacting the hub about the {label}")
    return _answer(path, kind, name, revision, label=label, host=constants.ENDPOINT)


def is_cached(kind: Kind, name: str, revision: str | None = None) -> bool:
    """Return whether a copy of this id is in the cache that hub clients share."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        answers = (
            try_to_load_from_cache(name, file, repo_type=kind, revision=revision)
            for file in _FILES[kind]
        )
        return any(isinstance(answer, str) for answer in answers)
    except HFValidationError:
        return False


def _answer(
    path: str, kind: Kind, name: str, revision: str | None, *, label: str, host: str
) -> Finding:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    ask = HfApi().model_info if kind == "model" else HfApi().dataset_info
    try:
        ask(name, revision=revision, timeout=_ANSWER_S)
    except GatedRepoError:
        return _warning(
            path,
            f"the {label} is gated, and the hub lets this machine's account not read it",
            "accept its terms on its page of the hub, and give the cluster's nodes HF_TOKEN",
        )
    except RevisionNotFoundError:
        return _warning(
            path, f"the hub has no such revision of the {label}", "check model.revision"
        )
    except (RepositoryNotFoundError, HFValidationError):
        return _warning(
            path,
            f"the hub has no {label}, or does not show it to this machine",
            "check its name; a private one needs HF_TOKEN on the cluster's nodes; a local folder is"
            " named from the workspace",
        )
    except Exception as error:  # The hub's client raises those of its HTTP client as well.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return _warning(
            path,
            f"{host} cannot be reached from this machine, so it is unknown whether the hub has the"
            f" {label}: {reason}",
            "check the name; the cluster's nodes may have a network of their own",
        )
    return _note(path, f"the hub has the {label}; the run downloads it")


def _note(path: str, message: str) -> Finding:
    return Finding(path=path, level="note", message=message)


def _warning(path: str, message: str, remedy: str) -> Finding:
    return Finding(path=path, level="warning", message=message, remedy=remedy)
