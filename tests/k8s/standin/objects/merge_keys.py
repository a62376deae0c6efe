"""How the lists and maps of built-in kinds merge: schemas with merge keys only."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _keyed(*keys: str, items: Schema | None = None) -> Schema:
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "items": items or {},
    }


_SET: Schema = {"type": "array", "x-kubernetes-list-type": "set"}
_ATOMIC: Schema = {"type": "object", "x-kubernetes-map-type": "atomic"}

METADATA = _object(ownerReferences=_keyed("uid"), finalizers=_SET)
_CONTAINER = _object(
    env=_keyed("name"),
    ports=_keyed("containerPort", "protocol"),
    volumeMounts=_keyed("mountPath"),
    volumeDevices=_keyed("devicePath"),
)
_POD_SPEC = _object(
    containers=_keyed("name", items=_CONTAINER),
    initContainers=_keyed("name", items=_CONTAINER),
    ephemeralContainers=_keyed("name", items=_CONTAINER),
    volumes=_keyed("name"),
    imagePullSecrets=_keyed("name"),
    hostAliases=_keyed("ip"),
    topologySpreadConstraints=_keyed("topologyKey", "whenUnsatisfiable"),
    nodeSelector=_ATOMIC,
)
_CONDITIONS = _keyed("type")
_POD_STATUS = _object(conditions=_CONDITIONS, podIPs=_keyed("ip"), hostIPs=_keyed("ip"))
_TEMPLATE = _object(template=_object(spec=_POD_SPEC))

BUILT_IN_SCHEMAS: dict[str, Schema] = {
    "Pod": _object(metadata=METADATA, spec=_POD_SPEC, status=_POD_STATUS),
    "Job": _object(metadata=METADATA, spec=_TEMPLATE, status=_object(conditions=_CONDITIONS)),
    "Deployment": _object(
        metadata=METADATA, spec=_TEMPLATE, status=_object(conditions=_CONDITIONS)
    ),
    "Service": _object(
        metadata=METADATA,
        spec=_object(ports=_keyed("port", "protocol"), selector=_ATOMIC),
        status=_object(conditions=_CONDITIONS),
    ),
    "Node": _object(
        metadata=METADATA,
        spec=_object(taints=_keyed("key", "effect")),
        status=_object(conditions=_CONDITIONS, addresses=_keyed("type")),
    ),
    "Namespace": _object(metadata=METADATA, status=_object(conditions=_CONDITIONS)),
    "PersistentVolumeClaim": _object(metadata=METADATA, status=_object(conditions=_CONDITIONS)),
    "ServiceAccount": _object(
        metadata=METADATA, secrets=_keyed("name"), imagePullSecrets=_keyed("name")
    ),
}


def child(schema: Schema, key: str) -> Schema:
    """The schema of one field; of metadata, which no schema describes, the common one."""
    found = schema.get("properties", {}).get(key)
    if found is None:
        more = schema.get("additionalProperties")
        return more if isinstance(more, dict) else {}
    return found


def of_object(schema: Schema, key: str) -> Schema:
    """Like `child`, for the fields at the root of an object."""
    return METADATA if key == "metadata" else child(schema, key)


def list_keys(schema: Schema) -> tuple[str, ...]:
    """The keys of a list that merges by key; none for other lists."""
    if schema.get("x-kubernetes-list-type") != "map":
        return ()
    return tuple(schema.get("x-kubernetes-list-map-keys", ()))


def is_set(schema: Schema) -> bool:
    return schema.get("x-kubernetes-list-type") == "set"


def is_atomic(schema: Schema) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"


def key_of(item: dict[str, Any], keys: tuple[str, ...], items: Schema) -> tuple[object, ...]:
    """An item's key, with defaults for what it leaves out (a port's protocol)."""
    known = items.get("properties", {})

    def value(key: str) -> object:
        if key in item:
            return item[key]
        return known.get(key, {}).get("default", "TCP" if key == "protocol" else None)

    return tuple(value(key) for key in keys)
