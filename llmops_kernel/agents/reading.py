"""The tools that read clusters and configs, and questions in SQL to all runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from pydantic import Field

from llmops_kernel import api
from llmops_kernel.agents import answers
from llmops_kernel.agents.rules import current_rules
from llmops_kernel.config.assist.diagnose import examine
from llmops_kernel.config.problems import Problem, ordered
from llmops_kernel.config.reading.document import read_text
from llmops_kernel.errors import ConfigError, QueryError
from llmops_kernel.kinds.reading import file_kind_of
from llmops_kernel.services import clusters as cluster_service
from llmops_kernel.services import data_preview as preview_service
from llmops_kernel.services.backend import current
from llmops_kernel.services.check import CloseCheck, check_closely
from llmops_kernel.services.plan import plans
from llmops_kernel.services.query.ask import answered
from llmops_kernel.services.types import ClusterInfo

_QUERY_S = 30.0
Run = Annotated[str, Field(description="Run id, a unique beginning of it, `last` or `last~1`.")]
Config = Annotated[
    str, Field(description="Path of a config in a workspace: *.train.yaml, *.score.yaml, *.py.")
]
Text = Annotated[
    str,
    Field(description="The config's text, in place of a file that is there.", max_length=100_000),
]
Overrides = Annotated[
    list[str], Field(description="Changes: `section.field=value`.", max_length=100)
]


# --- Clusters ---


def clusters() -> answers.Clusters:
    """List the clusters, with their state, size and what runs on them."""
    survey = current().survey()
    return answers.Clusters(
        clusters=tuple(cluster_line(info) for info in survey.infos),
        errors=tuple(str(error) for error in survey.errors),
    )


def cluster_status(name: str = "local") -> answers.Clusters:
    """Show one cluster: state, why it is not ready, size, use, running jobs."""
    return answers.Clusters(clusters=(cluster_line(cluster_service.find(name).info),))


def cluster_line(info: ClusterInfo) -> answers.ClusterLine:
    """Return what an answer has of a cluster: no address and no log."""
    names = (
        *("name", "provider", "is_ready", "message", "remedy", "num_nodes", "num_cpus"),
        *("num_gpus", "gpus_used", "jobs_running"),
    )
    values = {name: getattr(info, name) for name in names}
    return answers.ClusterLine(state=str(info.state), running=info.running or (), **values)


def queue(cluster: str = "local") -> answers.Queue:
    """List the runs of all users that wait on a cluster, the next one first, then those that run.

    A short job on the cluster reads it.
    """
    queued = api.cluster(cluster).queue()
    names = ("run", "user", "priority", "place", "needs", "since_s")
    return answers.Queue(
        runs=tuple(answers.Queued(**{n: getattr(each, n) for n in names}) for each in queued)
    )


# --- Configs: nothing is started ---


def check_config(
    config: Config,
    text: Text = "",
    overrides: Overrides = [],  # noqa: B006  # never changed; the schema shows it
    closely: bool = False,
) -> answers.Checked:
    """Report all mistakes of a config at once, each with a value that would work.

    With `text` the config need not be saved; `config` is the name that it would have. `closely`
    also tokenises rows and tries what the config names, with the workspace's own code on this
    machine: a person must have allowed `data`.
    """
    rules = current_rules()
    if closely:
        rules.require("data")
    path = rules.folder(config)
    kind = file_kind_of(path) or file_kind_of("x.train.yaml")
    assert kind is not None  # The kind `train` is always there.
    try:
        written = text or read_text(path, siblings=kind.globs[0])
    except ConfigError as error:
        return answers.Checked(is_valid=False, problems=_problems(error.problems))
    examined = examine(
        kind,
        written,
        path=str(path),
        folder=path.parent,
        with_files=closely,
        overrides=overrides,
        name=path.name,
    )
    close = CloseCheck()
    if closely and examined.config is not None:
        close = check_closely(examined.config, path.parent, problems=examined.problems)
    problems = ordered(map(examined.placed, [*examined.problems, *close.problems]))
    is_valid = not problems and examined.config is not None
    return answers.Checked(
        is_valid=is_valid,
        problems=_problems(problems),
        warnings=_problems([*map(examined.placed, [*examined.warnings, *close.warnings])]),
        effect=tuple(kind.effect(examined.config)) if is_valid and examined.config else (),
        checked=tuple(close.notes),
    )


def _problems(problems: Sequence[Problem]) -> tuple[answers.Problem, ...]:
    return tuple(answers.Problem(**problem.to_dict()) for problem in problems)


def plan(
    config: Config,
    overrides: Overrides = [],  # noqa: B006
    what_if: Annotated[
        list[str], Field(description="Changes to plan beside it, each on its own.", max_length=20)
    ] = [],  # noqa: B006
    cluster: Annotated[str, Field(description="Template: its machines and prices.")] = "local",
    fastest: Annotated[bool, Field(description="Look for the fastest that fits.")] = False,
) -> answers.Plans:
    """Return memory, speed and cost that are expected of a training, with what is assumed."""
    path = current_rules().folder(config)
    if "/" in cluster or cluster.endswith((".yaml", ".yml")):
        current_rules().folder(cluster)
    planned = plans(
        path, overrides, [[each] for each in what_if], with_fastest=fastest, cluster=cluster
    )
    return answers.Plans(fits=planned[0].plan.fits, plans=tuple(each.to_dict() for each in planned))


def data_preview(
    config: Config,
    overrides: Overrides = [],  # noqa: B006
    rows: Annotated[int, Field(ge=1, le=2000, description="Rows that are tokenised.")] = 200,
    show: Annotated[int, Field(ge=0, le=20)] = 3,
    evaluation: bool = False,
) -> answers.Preview:
    """Show rows of a training config as the model will see them, and how long they are.

    The workspace's own code makes the rows, on this machine: a person must have allowed `data`.
    """
    rules = current_rules()
    rules.require("data")
    job = preview_service.job_of(
        rules.folder(config), overrides=overrides, rows=rows, side="eval" if evaluation else "train"
    ).model_copy(update={"num_shown": show})
    values = preview_service.preview(job).model_dump(mode="json")
    shown = [
        {name: value for name, value in row.items() if name != "tokens"}
        for row in values.pop("rows")
    ]
    return answers.Preview(facts=values, rows=tuple(shown))


# --- Questions to all runs ---


def query(
    sql: Annotated[str, Field(max_length=20_000)],
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> answers.Rows:
    """Ask all runs in SQL (DuckDB): `show tables`, `describe steps`; tables runs, steps,
    evaluations, scores, phases, warnings. It can read nothing else and write nothing; 30 s.
    """
    with answered(sql, store=current().store, timeout_s=_QUERY_S) as (answer, notices):
        rows = list(islice(answer.rows(), limit + 1))
        left_out = 0
        if len(rows) > limit:
            try:
                left_out = answer.count() - limit
            except QueryError:  # Such as SHOW, which has no count.
                left_out = 1
        return answers.Rows(
            columns=answer.columns,
            rows=tuple(dict(zip(answer.columns, row, strict=True)) for row in rows[:limit]),
            notices=notices,
            left_out=left_out,
        )
