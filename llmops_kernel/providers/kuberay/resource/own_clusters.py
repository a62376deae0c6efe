"""Decisions of this user about RayClusters, kept at home: anybody may edit an annotation.

A record is made by `up`, `apply` and `cluster guard` only. It belongs to the uid, which the API
server gives, so that a newer cluster of the same name inherits nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.providers.kuberay.resource import names, status
from llmops_kernel.providers.kuberay.resource.objects import Obj, text
from llmops_kernel.store.files import private_folder, write_whole

_HARMLESS: Final = ("service-proxy",)
"""Routes through the API server, which anybody may choose: the token goes nowhere else."""


@dataclass(frozen=True)
class OwnCluster:
    """Record of a RayCluster of this user."""

    access: Access | None = None
    """That of this user's own template; None if the user has applied none."""
    secret: str = ""
    """The Secret of Ray's token that this user's own template names."""
    is_guarded: bool = False
    """This user made the cluster, or told a guard to watch it."""


def read(home: Path, raycluster: Obj) -> OwnCluster:
    """Return the record; an empty one where there is none."""
    record = _read(_path(home, raycluster))
    access = None
    with suppress(ValueError):
        access = Access.model_validate(record["access"]) if record.get("access") else None
    secret = record.get("secret")
    return OwnCluster(
        access, secret if isinstance(secret, str) else "", record.get("guarded") is True
    )


def note(
    home: Path,
    raycluster: Obj,
    *,
    template: KubeRayTemplate | None = None,
    is_guarded: bool = False,
    context: str = "",
) -> None:
    """Add to the record. If it cannot be written, the cluster is treated as somebody else's."""
    path = _path(home, raycluster)
    before = _read(path)
    record = {**before, "name": text(raycluster, "metadata", "name")}
    if context:
        record["where"] = [context, text(raycluster, "metadata", "namespace")]
    if template is not None:
        record["access"] = template.access.model_dump(mode="json")
        record["secret"] = text(template.raycluster, "authOptions", "secretName")
    if is_guarded:
        record["guarded"] = True
    if record == before:
        return
    with suppress(OSError):
        private_folder(path.parent)
        write_whole(path, json.dumps(record).encode())


def is_recorded(home: Path, *location: str) -> bool:
    """Return whether a cluster at this context, namespace and name was used, or begun."""
    *scope, name = location
    records = map(_read, (home / "kuberay" / "own").glob("*.json"))
    is_used = any(record.get("name") == name and record.get("where") == scope for record in records)
    return is_used or _begun_path(home, location).exists()


def begin(home: Path, *location: str) -> str:
    """Return the mark of a creation at a context, namespace and name; the same until `finish`.

    If it cannot be written, only a creation whose answer is lost is not known again.
    """
    path = _begun_path(home, location)
    mark = _read(path).get("mark")
    if isinstance(mark, str) and mark:
        return mark
    mark = secrets.token_hex(16)
    with suppress(OSError):
        private_folder(path.parent)
        write_whole(path, json.dumps({"mark": mark}).encode())
    return mark


def is_begun(home: Path, raycluster: Obj, *location: str) -> bool:
    """Return whether this user created it and has not learned that it exists."""
    mark = _read(_begun_path(home, location)).get("mark")
    return bool(mark) and status.annotation(raycluster, names.CREATION) == mark


def finish(home: Path, *location: str) -> None:
    """Forget the mark: the answer has arrived."""
    with suppress(OSError):
        _begun_path(home, location).unlink(missing_ok=True)


def forget(home: Path, raycluster: Obj, *, context: str) -> None:
    """Remove the record of a cluster that is deleted."""
    with suppress(OSError):
        _path(home, raycluster).unlink(missing_ok=True)
    meta = ("metadata", "namespace"), ("metadata", "name")
    finish(home, context, *(text(raycluster, *path) for path in meta))


def access_of(home: Path, raycluster: Obj) -> Access:
    """Return how its dashboard is reached: as the user's own template says.

    Without one, the cluster's annotation chooses only between routes through the API server.
    """
    access = read(home, raycluster).access
    if access is not None:
        return access
    method = status.access_of(raycluster).way
    return Access(way=method if method in _HARMLESS else "auto")


def refused_url(home: Path, raycluster: Obj) -> str | None:
    """Return the address that only the cluster's annotation names, to which no token is sent."""
    is_own = read(home, raycluster).access is not None
    return None if is_own else status.access_of(raycluster).url


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _begun_path(home: Path, location: tuple[str, ...]) -> Path:
    key = hashlib.sha256("\n".join(location).encode()).hexdigest()[:32]
    return home / "kuberay" / "begun" / f"{key}.json"


def _path(home: Path, raycluster: Obj) -> Path:
    # Hashed: the uid comes from a server, and a file's name must not.
    uid = text(raycluster, "metadata", "uid")
    return home / "kuberay" / "own" / f"{hashlib.sha256(uid.encode()).hexdigest()[:32]}.json"
