"""Says which other field managers own what an apply would change, before it is refused for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmops_kernel.providers.kuberay.edit.spec_changes import SETS, Change, changes
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.field_owners import appliers, owners
from llmops_kernel.providers.kuberay.resource.status import is_autoscaled

Raw = Mapping[str, Any]
_GROUPS: Final = "workerGroupSpecs"
_META: Final = (("metadata", "labels"), ("metadata", "annotations"))


class Conflicts:
    """The owners of fields of `live`; `base` is what we rendered when it was last made."""

    def __init__(self, live: Raw, rendered: Raw, *, base: Raw | None) -> None:
        self._live, self._rendered = live, rendered
        self._appliers = appliers(live)
        self._is_lent = base is not None and is_autoscaled(base) and not list_changes(live, base)

    def note(self, change: Change) -> str:
        """Return ` (owned by argocd-controller)`, or nothing."""
        found = self._owners(change)
        return f" (owned by {' and '.join(found)})" if found else ""

    def sentence(self, spec: Sequence[Change], labels: Sequence[str]) -> str:
        """Return what the owners mean for an apply of these changes; empty if there are none."""
        found = [owner for change in spec for owner in self._owners(change)]
        found += self._of_metadata(labels)
        managers = tuple(dict.fromkeys(found))
        if not managers:
            return ""
        again = [manager for manager in managers if manager in self._appliers]
        return (
            f"{' and '.join(managers)} own{'s' * (len(managers) == 1)} fields that this changes:"
            " `llmops cluster apply` refuses without `--force` (`force=True`)"
            + (f"; {_again(again)}" if again else "")
        )

    def _owners(self, change: Change) -> tuple[str, ...]:
        found = owners(self._live, ("spec", *change.path))
        if self._is_lent and is_of_list(change):
            # The autoscaler owns the list for its replicas, which are kept.
            return tuple(owner for owner in found if owner in self._appliers)
        return found

    def _of_metadata(self, labels: Sequence[str]) -> list[str]:
        keys = {*labels, names.TEMPLATE}
        return [
            owner
            for path in _META
            for key, value in _part(self._rendered, path).items()
            if key in keys and _part(self._live, path).get(key) != value
            for owner in owners(self._live, (*path, key))
        ]


def _again(managers: Sequence[str]) -> str:
    """Return that GitOps managers and pipelines set their values again."""
    verbs = "applies its manifest" if len(managers) == 1 else "apply their manifests"
    return f"{' and '.join(managers)} {verbs} again and may undo it: change it there as well"


def list_changes(live: Raw, base: Raw) -> list[Change]:
    """Return what others have changed of ours in lists that are replaced as a whole."""
    return [change for change in changes(live, base, base=base) if is_of_list(change)]


def is_of_list(change: Change) -> bool:
    return change.path[0] == _GROUPS or change.path[-1] in SETS


def _part(obj: Raw, path: Sequence[str]) -> Raw:
    for key in path:
        obj = obj.get(key) or {}
    return obj
