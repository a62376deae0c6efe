"""`llmops mcp`: tools for coding agents, over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from llmops_kernel.cli.app import MACHINE, command

_ALLOW = (
    "What agents may do besides reading; may be repeated. `data`: look at rows, with the"
    " workspace's own code; `submit`: submit, and submit and retry again; `stop`, `note`: their own"
    " runs; `clusters`: start and stop those named; `others`: act on runs of people too."
)
_EXAMPLE = "llmops mcp --allow submit --allow stop --runs 20 --gpu-hours 4"


_WORKSPACE = "Folder of configs and code; may be repeated. Default: this folder."
_CLUSTER = "Cluster that they may use; may be repeated. Default: `local`."
_NAME = "Name of the agent in the records of its runs; default: what the client says it is."
_SKILL = "Print SKILL.md, which tells an agent how to work with them, and exit."
Runs = Annotated[int | None, typer.Option(help="Budget: submissions; default: 5.", min=0)]
GpuHours = Annotated[float | None, typer.Option(help="Budget: GPU-hours; default: 1.", min=0)]
Money = Annotated[float | None, typer.Option(help="Budget, by the templates' prices.", min=0)]
NewBudget = Annotated[bool, typer.Option("--new-budget", help="Begin a new budget, and exit.")]


@command(MACHINE, example=_EXAMPLE)
def mcp(
    allow: Annotated[list[str] | None, typer.Option(help=_ALLOW)] = None,
    runs: Runs = None,
    gpu_hours: GpuHours = None,
    money: Money = None,
    workspace: Annotated[list[Path] | None, typer.Option(help=_WORKSPACE)] = None,
    cluster: Annotated[list[str] | None, typer.Option(help=_CLUSTER)] = None,
    name: Annotated[str, typer.Option(help=_NAME)] = "",
    new_budget: NewBudget = False,
    skill: Annotated[bool, typer.Option("--skill", help=_SKILL)] = False,
) -> None:
    """Serve MCP tools to a coding agent on standard input and output.

    Agents only read unless a person allows more, here or in agents.yaml of the home folder. Where
    there is that file, these options can only narrow it. The budget is one for all agents, and
    holds over restarts.
    """
    from llmops_kernel.agents import rules, serve
    from llmops_kernel.cli.console import echo

    if skill:
        echo(serve.skill(), nl=False)
        return
    budget = {"runs": runs, "gpu_hours": gpu_hours, "money": money}
    values: dict[str, Any] = {
        "allow": allow,
        "workspaces": [str(path.absolute()) for path in workspace] if workspace else None,
        "clusters": cluster,
        "name": name or None,
        **{f"budget.{key}": value for key, value in budget.items()},
    }
    rules.set_flags({key: value for key, value in values.items() if value is not None})
    if new_budget:
        _begin_anew()
        return
    rules.current_rules()  # A file that is wrong is reported now, not to the agent.
    _say_who_calls_this()
    serve.serve()


def _begin_anew() -> None:
    from llmops_kernel.agents import acting, ledger
    from llmops_kernel.cli.console import facts, out
    from llmops_kernel.services.backend import current

    ledger.Ledger(current().store).begin_anew()
    left = acting.budget()
    lines = {
        "runs": f"{left.runs_used} of {left.runs}",
        "GPU-hours": f"{left.gpu_hours_used:.4g} of {_limit(left.gpu_hours)}",
        "money": f"{left.money_used:.4g} of {_limit(left.money)}",
    }
    out().print(facts(lines))


def _limit(most: float | None) -> str:
    return "no limit" if most is None else f"{most:g}"


def _say_who_calls_this() -> None:
    import sys

    from llmops_kernel.cli.console import out

    if sys.stdin.isatty():
        out(stderr=True).print(
            "This speaks MCP on standard input. An agent's client starts it, for example:"
            " claude mcp add llmops -- llmops mcp --allow submit"
        )
