"""Which resources there are, as clients ask before they do anything else."""

from __future__ import annotations

from typing import Any

from tests.k8s.standin.objects.kinds import Kind, Registry

Body = dict[str, Any]
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-06-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def answer(registry: Registry, path: str, address: str) -> Body | None:
    """The answer to a discovery path; None where it is none."""
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            ranges = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": ranges,
            }
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in registry.groups().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name] if name in registry.groups():
            group = _group(name, registry.groups()[name])
            return {"kind": "APIGroup", "apiVersion": "v1"} | group
        case ["api", "v1"]:
            return _resources(registry, "", "v1")
        case ["apis", group, version] if version in registry.groups().get(group, []):
            return _resources(registry, group, version)
        case ["openapi", "v3"]:
            return _openapi_index(registry)
        case ["openapi", "v3", "api", version]:
            return _openapi(registry, "", version)
        case ["openapi", "v3", "apis", group, version]:
            return _openapi(registry, group, version)
    return None


def _group(name: str, versions: list[str]) -> Body:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _of(registry: Registry, group: str, version: str) -> list[Kind]:
    return [k for k in registry.kinds if k.group == group and version in k.versions]


def _resources(registry: Registry, group: str, version: str) -> Body:
    resources = []
    for kind in _of(registry, group, version):
        resources.append(_resource(kind))
        resources += [_subresource(kind, name) for name in kind.subresources]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _resource(kind: Kind) -> Body:
    body: Body = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        body["shortNames"] = list(kind.short)
    if kind.categories:
        body["categories"] = list(kind.categories)
    return body


_SUB_VERBS = {
    "log": ["get"],
    "portforward": ["create", "get"],
    "exec": ["create", "get"],
    "proxy": ["create", "delete", "get", "patch", "update"],
    "token": ["create"],
}


def _subresource(kind: Kind, name: str) -> Body:
    return {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _SUB_VERBS.get(name, ["get", "patch", "update"]),
    }


def _openapi_index(registry: Registry) -> Body:
    paths = ["api/v1"]
    for group, versions in registry.groups().items():
        paths += [f"apis/{group}/{version}" for version in versions]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]


def _openapi(registry: Registry, group: str, version: str) -> Body:
    """Paths with what a patch takes (kubectl looks for fieldValidation), and the schemas."""
    paths, schemas = {}, {}
    for kind in _of(registry, group, version):
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        space = "/namespaces/{namespace}" if kind.namespaced else ""
        named = {"group": group, "version": version, "kind": kind.kind}
        operation = {
            "operationId": f"patch{kind.kind}",
            "parameters": _PARAMETERS,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": named,
        }
        paths[f"{root}{space}/{kind.plural}/{{name}}"] = {"patch": operation}
        schema = kind.schema(version) if kind.custom else {"type": "object"}
        name = ".".join([*reversed(group.split(".")), version, kind.kind]).strip(".")
        schemas[name] = {**schema, "x-kubernetes-group-version-kind": [named]}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }
