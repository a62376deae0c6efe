"""Pages of every file that a user writes: one table a section, from the models that check it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.generate.markdown import table
from llmops_kernel.config.models.cluster import TEMPLATES
from llmops_kernel.config.models.fields import FieldSpec, SectionSpec, spec_of
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.names import ACCEPTED, ALIASES, OWNED, OWNED_PREFIXES, VALUE_ALIASES
from llmops_kernel.kinds.reading import file_kinds

_HEAD = ("field", "takes", "default", "what it is")
_INTRO = {
    "train": "`*.train.yaml` describes a training fully. `llmops init` writes one with every field"
    " explained, `llmops check FILE` reports all mistakes at once.",
    "script": "`*.script.yaml` describes a run of your own Python script."
    " `llmops init --example script` writes one.",
    "score": "`*.score.yaml` describes a scoring: a model answers each row of a table.",
    "local": "A cluster on this machine. `llmops up local` needs no file;"
    " `llmops cluster init NAME` writes one with every field explained.",
    "kuberay": "A cluster on Kubernetes, made by KubeRay's operator."
    " `llmops cluster init NAME --kind kuberay` writes one with every field explained.",
}
_FOREIGN = Path(__file__).with_name("from-other-trainers.md")


def pages() -> dict[str, str]:
    """Return the pages of configs, of cluster templates and of names from other trainers."""
    kinds = {name: kind for name, kind in file_kinds().items() if name != "cluster"}
    configs = {
        f"reference/{name}-config.md": _page(f"{kind.title}s", _INTRO.get(name, ""), kind.model)
        for name, kind in kinds.items()
    }
    titles = {"local": "Template of a local cluster", "kuberay": "Template of a Kubernetes cluster"}
    templates = {
        f"reference/{name}-template.md": _page(title, _INTRO[name], TEMPLATES[name])
        for name, title in titles.items()
    }
    foreign = _FOREIGN.read_text(encoding="utf-8").replace("<!-- TABLES -->", _foreign_tables())
    return {**configs, **templates, "howto/from-other-trainers.md": foreign}


def _page(title: str, intro: str, model: type[Section]) -> str:
    spec = spec_of(model)
    plain = {name: field for name, field in spec.fields.items() if _inner(field) is None}
    parts = [f"# {title}", intro, "## Top level", table(_HEAD, _rows(plain, spec, ""))]
    for name, field in spec.fields.items():
        inner = _inner(field)
        if inner is not None:
            parts += [f"## `{name}`", field.about, *_shorthand(name, field)]
            parts.append(table(_HEAD, _rows(inner.fields, inner, _prefix(name, field))))
    return "\n\n".join(part for part in parts if part) + "\n"


def _shorthand(name: str, field: FieldSpec) -> Iterator[str]:
    section = field.section
    if section is not None and section.shorthand is not None:
        yield f"`{name}: VALUE` alone means `{name}: {{{section.shorthand}: VALUE}}`."


def _inner(field: FieldSpec) -> SectionSpec | None:
    return field.section or field.item


def _prefix(name: str, field: FieldSpec) -> str:
    return f"{name}." if field.section is not None else f"{name}[]."


def _rows(fields: Any, spec: SectionSpec, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in fields.items():
        owners = spec.owners.get(name, [])
        only = len(owners) < len(spec.variants) and bool(owners)
        where = f" Only with `{spec.shorthand}`: {_listed(owners)}." if only else ""
        yield f"`{prefix}{name}`", field.expected, _default(field), field.about + where
        inner = _inner(field)
        if inner is not None and prefix:
            yield from _rows(inner.fields, inner, _prefix(prefix + name, field))


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _default(field: FieldSpec) -> str:
    if field.is_required:
        return "*required*"
    default = field.default
    if isinstance(default, Section) or (field.section is not None and default is None):
        return ""
    text = json.dumps(default, default=str)
    return f"`{text.strip(chr(34))}`" if default != "" else "empty"


def _foreign_tables() -> str:
    accepted = ((f"`{name}`", f"`{alias.field}`") for name, alias in sorted(ACCEPTED.items()))
    told = {**ALIASES, **OWNED}
    explained = (
        (f"`{name}`", OWNED.get(name, f"set {path}"))
        for name, path in sorted(told.items())
        if name not in ACCEPTED
    )
    beginnings = ((f"`{name}*`", text) for name, text in OWNED_PREFIXES.items())
    values = ((f"`{name}`", f"`{value}`") for name, value in VALUE_ALIASES.items())
    return "\n\n".join(
        (
            "## Names that are read as ours",
            "A config may have these names, at the top level or in the field's section.",
            table(("elsewhere", "here"), accepted),
            "## Names that are explained",
            "These mean more or less than a field of ours. A config with one is refused, and the"
            " message says what to set.",
            table(("elsewhere", "what to do here"), (*explained, *beginnings)),
            "## Values that are explained",
            "A message proposes the value on the right for the one on the left.",
            table(("elsewhere", "here"), values),
        )
    )
