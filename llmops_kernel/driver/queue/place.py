"""What a run waits for, from one look at the cluster. Ray itself has no order of waiting runs."""

from __future__ import annotations

from dataclasses import dataclass

from llmops_kernel.config.counted import counted
from llmops_kernel.driver.queue.cluster_use import Amounts, ClusterUse, Request, add

_NAMED = 3
_OTHER = "other work"


@dataclass(frozen=True)
class Place:
    reason: str
    place: int | None = None
    """1 for the run whose turn it is; None where there is no order."""
    length: int | None = None
    """How many runs wait for some of the same resources, this one included."""


def find_place(use: ClusterUse) -> Place | None:
    """Return what this job's requests wait for; None if Ray does not report that they wait."""
    own = [one for one in use.requests if one.job == use.own_job]
    waiting = [one for one in own if one.state == "waits"]
    if waiting:
        return Place(_reason(waiting, use))
    # Ray does not say of an actor whether it waits for resources or for its process.
    starting = [one for one in own if one.state == "starts"]
    if starting and _cannot_have_started(add(one.amounts for one in starting), use):
        return Place(_reason(starting, use))
    return None


def _cannot_have_started(wanted: Amounts, use: ClusterUse) -> bool:
    """Return True if a resource is short, and what is in use is in use by others."""
    held = add(one.amounts for one in use.requests if one.state == "holds")
    for name, amount in wanted.items():
        used = use.total.get(name, 0.0) - use.free.get(name, 0.0)
        if amount > use.free.get(name, 0.0) and used - held.get(name, 0.0) < amount:
            return True
    return False


def _reason(waiting: list[Request], use: ClusterUse) -> str:
    wanted = add(one.amounts for one in waiting)
    wanted = {name: amount for name, amount in wanted.items() if amount}
    asked = amounts_words(wanted)
    if _grows_enough(wanted, use):
        free = amounts_words({name: use.free.get(name, 0.0) for name in wanted})
        return f"needs {asked}; Ray's autoscaler adds nodes (free now: {free})"
    short = [name for name, amount in wanted.items() if amount > use.free.get(name, 0.0)]
    if any(one.is_too_large for one in waiting):
        return f"needs {asked}; no node of the cluster is large enough yet"
    if not short:
        return f"needs {asked}; no node has enough of them free"
    return f"needs {asked}; {'; '.join(_used(name, use) for name in short)}"


def _grows_enough(wanted: Amounts, use: ClusterUse) -> bool:
    """Return whether the nodes that the autoscaler may still add have what is short."""
    if use.most is None:
        return False
    lacks = {name: amount - use.free.get(name, 0.0) for name, amount in wanted.items()}
    left = {name: most - use.total.get(name, 0.0) for name, most in use.most.items()}
    short = [name for name, amount in lacks.items() if amount > 0]
    return bool(short) and all(lacks[name] <= left.get(name, 0.0) for name in short)


def _used(name: str, use: ClusterUse) -> str:
    """`2 of 2 CPUs are used by run lora-2a4c`."""
    total = use.total.get(name, 0.0)
    used = max(0.0, total - use.free.get(name, 0.0))
    verb = "is" if total == 1 else "are"
    return f"{used:g} of {_amount(total, name)} {verb} used{_users(name, used, use)}"


def _users(name: str, used: float, use: ClusterUse) -> str:
    by_run: Amounts = {}
    for one in use.requests:
        if one.state == "holds" and one.amounts.get(name):
            run = use.runs.get(one.job, _OTHER)
            by_run[run] = by_run.get(run, 0.0) + one.amounts[name]
    rest = used - sum(by_run.values())
    if rest > 0.01:
        by_run[_OTHER] = by_run.get(_OTHER, 0.0) + rest
    others = by_run.pop(_OTHER, 0.0)
    runs = sorted(by_run, key=lambda run: (-by_run[run], run))
    names = [f"run {run}" for run in runs[:_NAMED]]
    if len(runs) > _NAMED:
        names.append(counted(len(runs) - _NAMED, "more run"))
    if others:
        names.append(_OTHER)
    if not names:
        return ""
    return f" by {', '.join(names[:-1])}{' and ' if names[:-1] else ''}{names[-1]}"


def amounts_words(amounts: Amounts) -> str:
    """Return `2 CPUs and 1 GPU`."""
    return " and ".join(_amount(amount, name) for name, amount in amounts.items())


def _amount(amount: float, name: str) -> str:
    if name in ("memory", "object_store_memory"):
        return f"{amount / 1024**3:,.3g} GiB of {name.replace('_', ' ')}"
    return counted(amount, name)
