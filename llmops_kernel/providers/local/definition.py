"""What a cluster was started from, as far as it may be stored on disk: `env` may hold a secret."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.reading.check import validated
from llmops_kernel.config.reading.origins import Origins
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.local.record import HeadRecord


@dataclass(frozen=True, kw_only=True)
class Definition:
    """Enough to start the same cluster again."""

    template: ClusterTemplate
    path: Path | None = None
    note: str = ""
    """What differs from the start; empty if nothing does."""

    def resized(self, *, num_cpus: int | None, num_gpus: int | None) -> Definition:
        """Return it with other numbers; None keeps a number. Raises ConfigError."""
        wanted = {"num_cpus": num_cpus, "num_gpus": num_gpus}
        changes = {key: value for key, value in wanted.items() if value is not None}
        if not changes:
            raise ConfigError(
                "Neither a number of CPUs nor of GPUs was given",
                remedy="give num_cpus or num_gpus",
            )
        return replace(
            self, template=_template({**self.template.model_dump(mode="json"), **changes})
        )


def recordable(template: ClusterTemplate) -> dict[str, Any]:
    """Return the template without `env`: it may hold secrets, and does not identify a head."""
    return template.model_dump(mode="json", exclude={"env", "name", "provider"})


def definition_of(record: HeadRecord) -> Definition:
    """Return the definition; `env` is read again from the template's file.

    Raises ConfigError for an unusable record.
    """
    env, note = _env_again(record)
    data = {**record.template, "name": record.name, "provider": "local", "env": env}
    return Definition(template=_template(data), path=record.template_path, note=note)


def _template(data: dict[str, Any]) -> ClusterTemplate:
    return validated(ClusterTemplate, data, origins=Origins())


def _env_again(record: HeadRecord) -> tuple[dict[str, str], str]:
    """Return the variables and what is unusual about them."""
    if record.env_names is None:
        return {}, "Started without `env`: whether its template sets any is not recorded"
    if not record.env_names:
        return {}, ""
    names = ", ".join(record.env_names)
    if record.template_path is None:
        return (
            {},
            f"Started without `env` ({names}): it is never stored, and there is no file to read"
            " it from",
        )
    try:
        found = load_cluster_template(record.template_path)
    except ConfigError as error:
        what = error.message.splitlines()[0]
        return {}, f"Started without `env` ({names}): it is never stored, and {what}"
    env = found.env if isinstance(found, ClusterTemplate) else {}
    if set(env) != set(record.env_names):
        now = ", ".join(sorted(env)) or "nothing"
        return env, f"`env` of {record.template_path} has changed: {names} before, {now} now"
    return env, ""


def difference(record: HeadRecord | None, template: ClusterTemplate) -> str:
    """Return how the running head differs from the template."""
    if record is None:
        return ""
    wanted = recordable(template)
    # A record of an older version lacks the fields that it did not know.
    there = recordable(ClusterTemplate()) | record.template
    unlike = [
        f"{key}={_shown(there.get(key))} (the cluster template has {_shown(value)})"
        for key, value in wanted.items()
        if there.get(key) != value
    ]
    if not unlike:
        return ""
    return (
        f"Attached to a running head with {', '.join(unlike)}."
        f" `llmops down {record.name}` and `up` apply the template"
    )


def _shown(value: Any) -> str:
    return "default" if value is None else str(value)
