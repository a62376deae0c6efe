"""What others added to a RayCluster in lists that an apply replaces: it is sent back with ours.

Kueue writes labels, annotations, node selectors, tolerations and a scheduling gate into the pod
templates of each worker group when it admits a cluster; webhooks and service meshes add containers
and volumes. All worker groups are one list with one owner, so an apply without them would be
refused, or would delete them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from llmops_kernel.providers.kuberay.edit.spec_changes import (
    ABSENT,
    ATOMIC,
    KEYS,
    NOT_OURS,
    with_others,
)

Raw = dict[str, Any]


def with_additions(
    rendered: Mapping[str, Any], live: Mapping[str, Any], base: Mapping[str, Any]
) -> Raw:
    """Return the spec to apply: `rendered` and what others wrote into atomic lists of `live`.

    `base` is what we rendered before: all else in those lists is theirs.
    """
    return _map(rendered, live, base, whole=False)


def _map(new: Any, live: Any, base: Any, *, whole: bool) -> Raw:
    merged = {key: _value(key, new[key], live, base, whole=whole) for key in new}
    if whole:
        # `scaleStrategy` is left out, as the autoscaler removes its orders itself.
        theirs = [key for key in live if key not in new and key not in base]
        merged |= {key: copy.deepcopy(live[key]) for key in theirs if key not in NOT_OURS}
    return merged


def _value(key: str, wanted: Any, live: Any, base: Any, *, whole: bool) -> Any:
    had, was = live.get(key, ABSENT), base.get(key, ABSENT)
    if isinstance(wanted, Mapping) and isinstance(had, Mapping):
        return _map(wanted, had, was if isinstance(was, Mapping) else {}, whole=whole)
    if key in KEYS and isinstance(wanted, list) and isinstance(had, list):
        ours = was if isinstance(was, list) else []
        return _list(wanted, had, ours, by=KEYS[key], whole=whole or key in ATOMIC)
    return copy.deepcopy(with_others(key, had, wanted, was))


def _list(wanted: list[Any], had: list[Any], ours: list[Any], *, by: str, whole: bool) -> list[Any]:
    old, was = _by_name(had, by), _by_name(ours, by)
    merged = [
        _map(item, old[name], was.get(name, {}), whole=whole)
        if (name := str(item.get(by))) in old
        else copy.deepcopy(item)
        for item in wanted
    ]
    if whole:
        kept = [name for name in old if name not in was and name not in _by_name(wanted, by)]
        merged += [copy.deepcopy(old[name]) for name in kept]
    return merged


def _by_name(items: list[Any], by: str) -> dict[str, Any]:
    return {str(item.get(by)): item for item in items if isinstance(item, Mapping)}
