"""KubeRay's CRD as a strict check: its schema, and no field that it does not know."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import jsonschema

from tests.k8s.recordings import RAYCLUSTER_CRD

Schema = Mapping[str, Any]


def faults(raycluster: Mapping[str, Any]) -> list[str]:
    """Everything that `fieldValidation=Strict` would refuse, as far as a schema can tell."""
    validator = jsonschema.Draft202012Validator(_schema())
    reported = [
        f"{error.json_path}: {error.message}" for error in validator.iter_errors(raycluster)
    ]
    return [*reported, *(f"unknown field {path}" for path in _unknown(raycluster, _schema(), ""))]


def pod_faults(spec: Mapping[str, Any]) -> list[str]:
    """The same for the spec of any pod: the CRD has Kubernetes' own schema of pods."""
    schema = _schema()
    for name in ("spec", "headGroupSpec", "template", "spec"):
        schema = schema["properties"][name]
    validator = jsonschema.Draft202012Validator(schema)
    reported = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(spec)]
    return [*reported, *(f"unknown field {path}" for path in _unknown(spec, schema, ""))]


@cache
def _schema() -> Schema:
    crd = json.loads(gzip.decompress(RAYCLUSTER_CRD.read_bytes()))
    (version,) = [v for v in crd["spec"]["versions"] if v["name"] == "v1"]
    return _as_json_schema(version["schema"]["openAPIV3Schema"])


def _as_json_schema(schema: Any) -> Any:
    """`int-or-string` is a word of Kubernetes' own."""
    if isinstance(schema, list):
        return [_as_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        kept = {key: schema[key] for key in ("pattern",) if key in schema}
        return {"type": ["integer", "string"], **kept}
    return {key: _as_json_schema(value) for key, value in schema.items() if key != "format"}


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), f"{path}[{index}]")
        return
    if not isinstance(value, Mapping) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known, free = schema.get("properties", {}), schema.get("additionalProperties")
    for key, inner in value.items():
        if path == ".metadata" and not known:
            continue  # Checked by the API server itself, not by the CRD.
        if key in known:
            yield from _unknown(inner, known[key], f"{path}.{key}")
        elif isinstance(free, Mapping):
            yield from _unknown(inner, free, f"{path}.{key}")
        elif not free:
            yield f"{path}.{key}"
