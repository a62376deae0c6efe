"""The tools that start, stop or change something, each with a reason, within what is allowed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from llmops_kernel import api
from llmops_kernel.agents import answers
from llmops_kernel.agents.ledger import Entry, Ledger
from llmops_kernel.agents.reading import Config, Overrides, Run, Text
from llmops_kernel.agents.rules import AgentRules, current_rules, rules_file
from llmops_kernel.errors import AgentError, LLMOpsError
from llmops_kernel.services import clusters as cluster_service
from llmops_kernel.services import submission
from llmops_kernel.services.backend import current
from llmops_kernel.services.submission import Submission
from llmops_kernel.store.files import store_errors
from llmops_kernel.store.record import AgentMark, Priority
from llmops_kernel.store.run_notes import AgentAct, add_act

CLIENT: ContextVar[str] = ContextVar("llmops_agent_client", default="agent")
"""What the client of this call says it is."""
MOST_REASON = 500
OVER_S = 30.0
"""How often a server looks for runs that use more than was reserved for them."""
Reason = Annotated[
    str,
    Field(
        description="Why you do this: people read it in the record of the run.",
        min_length=3,
        max_length=MOST_REASON,
    ),
]
Hours = Annotated[
    float | None,
    Field(
        ge=0,
        description="GPU-hours that it may use: it is stopped beyond. Default: an equal share of"
        " the budget.",
    ),
]
Money = Annotated[float | None, Field(ge=0, description="Money that it may use, likewise.")]


def agent_name(rules: AgentRules) -> str:
    """Return the name that runs have of the agent: a person's choice, else the client's own."""
    return rules.name or " ".join(answers.cleaned(CLIENT.get(), most=None).split())[:60] or "agent"


def budget() -> answers.Allowed:
    """Show what you may do, where, and what is left of the budget of all agents."""
    rules, use = current_rules(), Ledger(current().store).use()
    with suppress(AgentError):
        rules = rules.model_copy(update={"workspaces": rules.workspaces or (rules.folder(),)})
    return answers.Allowed(
        allow=rules.allow,
        workspaces=tuple(map(str, rules.workspaces)),
        clusters=rules.clusters,
        priority=rules.priority,
        runs=rules.budget.runs,
        runs_used=use.runs,
        gpu_hours=rules.budget.gpu_hours,
        gpu_hours_used=use.gpu_hours,
        money=rules.budget.money,
        money_used=use.money,
        file=str(rules_file()),
    )


# --- Submit ---


def submit(
    config: Config,
    reason: Reason,
    text: Text = "",
    overrides: Overrides = [],  # noqa: B006  # never changed; the schema shows it
    cluster: str = "local",
    priority: Priority = "normal",
    group: Annotated[str, Field(max_length=60)] = "",
    gpu_hours: Hours = None,
    money: Money = None,
) -> answers.Done:
    """Submit a config of a workspace and return as soon as the cluster has accepted it.

    With `text` the config need not be saved; `config` is the name that it would have. A training
    that is expected not to fit in memory is refused. `wait` then says how it goes on.
    """
    rules = _rules_for(cluster, priority)
    path = rules.folder(config)
    if text:
        request = submission.from_text(
            text,
            name=path.name,
            workspace=path.parent,
            config_path=submission.shown_path(path, path.parent),
            overrides=overrides,
        )
    else:
        request = submission.from_config(path, overrides=overrides)
    request = replace(request, strict=True, group=group, priority=priority)
    return _submitted(rules, request, cluster, reason, gpu_hours, money)


def resubmit(
    run: Run,
    reason: Reason,
    overrides: Overrides = [],  # noqa: B006
    cluster: str = "",
    priority: Priority = "normal",
    gpu_hours: Hours = None,
    money: Money = None,
) -> answers.Done:
    """Submit a run's config again with changes and the workspace's code as it is now, as a new run.

    The run may be anybody's, if its workspace is one of yours.
    """
    target = api.attach(run)
    cluster = cluster or target.record.cluster
    rules = _rules_for(cluster, priority)
    folder = rules.folder(target.record.workspace_root)
    request = submission.from_run(target.record, workspace=folder, overrides=overrides)
    request = replace(request, strict=True, priority=priority)
    return _submitted(rules, request, cluster, reason, gpu_hours, money)


def _rules_for(cluster: str, priority: Priority) -> AgentRules:
    rules = current_rules()
    rules.require("submit")
    rules.require_cluster(cluster)
    rules.require_priority(priority)
    return rules


def _submitted(
    rules: AgentRules,
    request: Submission,
    cluster: str,
    reason: str,
    gpu_hours: float | None,
    money: float | None,
) -> answers.Done:
    target, name = cluster_service.find(cluster), agent_name(rules)
    with _reserved(rules, name, gpu_hours, money) as entry:
        mark = AgentMark(name=name, reason=answers.cleaned(reason), ticket=entry.ticket)
        record = submission.submit(target, replace(request, agent=mark))
        Ledger(current().store).attach(entry.ticket, record.run_id)
    _act(record.run_id, name, "submit", reason)
    advice = request.config.advice() if hasattr(request.config, "advice") else ()
    return _done(rules, "submitted", record.run_id, tuple(map(str, advice)))


def retry(run: Run, reason: Reason, gpu_hours: Hours = None, money: Money = None) -> answers.Done:
    """Go on with a run that has ended, from its last checkpoint, as a new attempt of it."""
    target = api.attach(run)
    rules = _rules_for(target.record.cluster, "low")
    name = _require_own(rules, target)
    with _reserved(rules, name, gpu_hours, money, run=target.id) as entry:
        target.retry()
        newest = target.attempts[-1].number
        Ledger(current().store).attach(entry.ticket, target.id, newest)
    _act(target.id, name, "retry", reason)
    return _done(rules, "retried", target.id)


@contextmanager
def _reserved(
    rules: AgentRules, name: str, gpu_hours: float | None, money: float | None, *, run: str = ""
) -> Iterator[Entry]:
    """Reserve a run; what was reserved is given back when the submission fails."""
    ledger = Ledger(current().store)
    entry = ledger.reserve(rules.budget, agent=name, gpu_hours=gpu_hours, money=money, run=run)
    try:
        yield entry
    except BaseException:
        ledger.give_back(entry.ticket)
        raise


# --- Stop, note, clusters ---


def stop(run: Run, reason: Reason) -> answers.Done:
    """Stop a run that you submitted; it saves a checkpoint first, from which `retry` goes on."""
    rules, target = current_rules(), api.attach(run)
    rules.require("stop")
    name = _require_own(rules, target)
    if target.has_ended:
        return _done(rules, "it has ended already", target.id)
    target.stop()
    _act(target.id, name, "stop", reason)
    return _done(rules, "stopping", target.id)


def annotate(
    run: Run,
    reason: Reason,
    note: Annotated[str | None, Field(max_length=20_000, description="Replaces its note.")] = None,
    tags: Annotated[list[str], Field(max_length=20, description="Added.")] = [],  # noqa: B006
    remove_tags: Annotated[list[str], Field(max_length=20)] = [],  # noqa: B006
) -> answers.Done:
    """Write the note of a run that you submitted, and add and remove its tags."""
    rules, target = current_rules(), api.attach(run)
    rules.require("note")
    name = _require_own(rules, target)
    if note is not None:
        target.note = answers.cleaned(note, most=None)
    if tags or remove_tags:
        target.tag(*(answers.cleaned(tag) for tag in tags), remove=remove_tags)
    _act(target.id, name, "note", reason)
    return _done(rules, "noted", target.id)


def up(reason: Reason, name: str = "local") -> answers.Done:
    """Start a cluster, or attach to it when it is up; on Kubernetes it goes on in the background.

    `name` is that of a cluster template. It outlives you: say so to the person, or use `down`.
    """
    rules = current_rules()
    rules.require("clusters")
    template, path = cluster_service.read_template(name)
    rules.require_cluster(template.name)
    if path is not None and "/" in name:
        rules.folder(path)
    info = cluster_service.up(template, path=path, wait=False, backend=current())
    _act_on_cluster(rules, info.name, "up", reason)
    return answers.Done(done="up", cluster=info.name, state=str(info.state))


def down(name: str, reason: Reason) -> answers.Done:
    """Stop a cluster, with all that runs on it, of everybody; the runs' results are kept."""
    rules = current_rules()
    rules.require("clusters")
    rules.require_cluster(name)
    target = api.cluster(name)
    if "others" not in rules.allow:
        own = [run.id for run in target.runs(limit=None) if _is_own(rules, run)]
        running = target.info.running
        others = [each for each in running or () if not any(run_id in each for run_id in own)]
        if running is None or others:
            what = "; ".join(others[:5]) or "nobody knows what runs"
            raise AgentError(
                f"Cluster {name!r} may be used by others: {what}",
                remedy="wait until they have ended, or ask a person to allow `others`",
            )
    target.down()
    _act_on_cluster(rules, name, "down", reason)
    return answers.Done(done="down", cluster=name)


def _is_own(rules: AgentRules, run: api.Run) -> bool:
    mark = run.record.agent
    return mark is not None and mark.name == agent_name(rules)


def _require_own(rules: AgentRules, run: api.Run) -> str:
    """Return the agent's name. Raises AgentError for a run that it did not submit."""
    if not _is_own(rules, run) and "others" not in rules.allow:
        mark = run.record.agent
        owner = f"agent {mark.name}" if mark else run.record.user or "a person"
        raise AgentError(
            f"Run {run.id} was submitted by {owner}, not by you",
            remedy="ask the person; `others` in agents.yaml allows it",
        )
    return agent_name(rules)


def _act(run_id: str, agent: str, action: str, reason: str) -> None:
    act = {"time_s": time.time(), "agent": agent, "action": action}
    folder = current().store.folder(run_id)
    add_act(folder, AgentAct.model_validate({**act, "reason": answers.cleaned(reason)}))


def _act_on_cluster(rules: AgentRules, cluster: str, action: str, reason: str) -> None:
    """Append to `agents.log` of the home: a cluster has no record of its own."""
    line = " ".join(answers.cleaned(reason).split())
    path = current().store.root / "agents.log"
    moment = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    with store_errors("write", path), path.open("a", encoding="utf-8") as file:
        file.write(f"{moment} {agent_name(rules)} {action} {cluster}: {line}\n")


def _done(rules: AgentRules, done: str, run: str, advice: tuple[str, ...] = ()) -> answers.Done:
    use, limits = Ledger(current().store).use(), rules.budget
    return answers.Done(
        done=done,
        run=run,
        state=api.attach(run).state,
        advice=advice,
        runs_left=max(0, limits.runs - use.runs),
        gpu_hours_left=_rest(limits.gpu_hours, use.gpu_hours),
        money_left=_rest(limits.money, use.money),
    )


def _rest(most: float | None, used: float) -> float | None:
    return None if most is None else max(0.0, most - used)


def stop_what_is_over() -> None:
    """Stop runs of agents that have used more than was reserved for them."""
    ledger = Ledger(current().store)
    for entry in ledger.over():
        with suppress(LLMOpsError):  # Its cluster may be gone; the next look tries again.
            api.attach(entry.run).stop()
            reason = (
                f"it has used {entry.used_gpu_hours or 0:.4g} GPU-hours and"
                f" {entry.used_money or 0:.4g} of money, more than it reserved"
            )
            _act(entry.run, "llmops", "stop", reason)
