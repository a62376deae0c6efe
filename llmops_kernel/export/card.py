"""The model card: what the run's record and journal say, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.store.export_job import CardFacts, ExportJob
from llmops_kernel.version import VERSION

NAME = "README.md"
_DASH = "–"
_PIPELINES = {
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModel": "sentence-similarity",
}
"""The hub's names of tasks (huggingface.co/docs/hub/models-tasks), by class."""
_LOCAL = ("/", "./", "../", "~")


def card(
    job: ExportJob, *, what: str, notes: Iterable[str], base_folder: str = "", library: str = ""
) -> str:
    """Return the model card; `what` says in one sentence what the folder contains."""
    facts = job.card
    parts = [
        f"---\n{yaml.safe_dump(_front(job, base_folder, library), sort_keys=False)}---\n",
        f"# {job.name}\n",
        f"{what} Written by llmops-kernel {VERSION} from the training run `{facts.run_id}`.\n",
        *(f"{note}\n" for note in notes),
        f"## Training\n\n{_table(_training(facts))}",
        f"## Settings\n\n{_table(facts.settings)}" if facts.settings else "",
        f"## Data\n\n{_data(facts)}",
        f"## Evaluation\n\n{_evaluation(facts)}",
        f"## Where it comes from\n\n{_table(_origin(facts))}",
        _missing(facts),
    ]
    return "\n".join(part for part in parts if part)


def _front(job: ExportJob, base_folder: str, library: str) -> dict[str, Any]:
    """Return the metadata that the hub reads; a local folder is no model that it could link."""
    base = job.card.base
    front: dict[str, Any] = {}
    if base and not base.startswith(_LOCAL) and not _is_folder(job, base):
        front["base_model"] = base
    if license_name := _license(base_folder):
        front["license"] = license_name
    is_adapter = job.source.what == "adapter" and job.keep_adapter
    front["library_name"] = library or ("peft" if is_adapter else "transformers")
    front["pipeline_tag"] = _PIPELINES[job.source.auto_class]
    front["tags"] = ["llmops-kernel", *([job.card.method] if job.card.method else [])]
    return front


def _is_folder(job: ExportJob, base: str) -> bool:
    return any((Path(root) / base).exists() for root in job.source.roots)


def _license(base_folder: str) -> str:
    """Return the license that the base model's own card states; empty if it is unknown."""
    try:
        text = (Path(base_folder) / NAME).read_text() if base_folder else ""
    except (OSError, UnicodeDecodeError):
        return ""
    if not text.startswith("---"):
        return ""
    try:
        front = yaml.safe_load(text.split("---")[1])
    except yaml.YAMLError:
        return ""
    name = front.get("license") if isinstance(front, dict) else None
    return name if isinstance(name, str) else ""


def _training(facts: CardFacts) -> dict[str, Any]:
    base = facts.base or None
    if facts.base in CATALOGUE:
        base = f"{facts.base} (built-in catalogue of llmops-kernel)"
    elif facts.base.startswith(_LOCAL):
        base = f"a local folder, `{Path(facts.base).name}`"
    steps = None if facts.steps is None else str(facts.steps)
    if steps and facts.total_steps and facts.total_steps != facts.steps:
        steps += f" of {facts.total_steps}"
    return {
        "base model": base,
        "method": facts.method or None,
        "steps": steps,
        "last training loss": facts.last_loss,
        "state of the run": facts.state or None,
        "device": facts.device or None,
        "workers": facts.workers,
    }


def _data(facts: CardFacts) -> str:
    if not facts.data:
        return "The run did not record which data it read.\n"
    rows = [
        [
            source["role"],
            f"`{source['source']}`",
            _cell(source.get("rows")),
            _cell(source.get("sha256_16")),
        ]
        for source in facts.data
    ]
    return _rows(["use", "source", "rows used", "SHA-256, first 16 digits"], rows)


def _evaluation(facts: CardFacts) -> str:
    if not facts.metrics:
        return "The run was not evaluated.\n"
    on = f" on {facts.metrics_rows} held-out rows" if facts.metrics_rows else ""
    return f"After step {facts.metrics_step}{on}:\n\n{_table(facts.metrics)}"


def _origin(facts: CardFacts) -> dict[str, Any]:
    return {
        "run": facts.run_id,
        "submitted": facts.created,
        "config, SHA-256": facts.config_hash or None,
        "code, content hash": facts.code_hash or None,
        "git revision": facts.git or None,
        "versions": ", ".join(f"{name} {version}" for name, version in facts.versions.items())
        or None,
    }


def _missing(facts: CardFacts) -> str:
    """Name the facts that are unknown, instead of leaving them out."""
    gaps = {
        "the license of the data": True,
        "the git revision": not facts.git,
        "the data": not facts.data,
        "content hashes of data outside the workspace": any(
            not source.get("sha256_16") for source in facts.data
        ),
        "an evaluation": not facts.metrics,
    }
    names = [name for name, is_missing in gaps.items() if is_missing]
    return f"Not recorded by the run: {'; '.join(names)}.\n"


def _table(values: Mapping[str, Any]) -> str:
    return _rows(["", ""], [[name, _cell(value)] for name, value in values.items()])


def _rows(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return _DASH
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
