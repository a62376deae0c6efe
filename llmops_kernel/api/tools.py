"""Questions in SQL, plans, previews of data, hard negatives, checks of this machine, benchmark."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.api.cluster_handle import Cluster
from llmops_kernel.api.environment import default_progress
from llmops_kernel.api.run_handle import Run
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.kinds.reading import ConfigLike
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services import data_preview as service
from llmops_kernel.services import plan as plan_service
from llmops_kernel.services.backend import current
from llmops_kernel.services.plan_inputs import Guess
from llmops_kernel.views import plan as plan_views
from llmops_kernel.views.preview_facts import facts
from llmops_kernel.views.preview_text import html_of, row_head, row_html, row_lines, text_of

if TYPE_CHECKING:
    import pandas as pd

    from llmops_kernel.services.doctor import DoctorReport
    from llmops_kernel.services.query.ask import Parameters
    from llmops_kernel.services.scoring.mine import Mined, Mining
    from llmops_kernel.views.bench_figures import Kind, LoopFigures


def query(
    sql: str, parameters: Parameters = None, *, timeout_s: float | None = None
) -> pd.DataFrame:
    """Ask all runs of this home folder in SQL (DuckDB); return the rows as a DataFrame.

    `llmops.query("select step, loss from steps where run = ?", [run.id])`. `llmops query
    --tables` and `llmops.query("show tables")` list the tables. Unknown numbers are `pd.NA`,
    those that a run reported as NaN stay NaN; times are UTC. Only reads. Raises QueryError,
    MissingDependencyError without DuckDB.
    """
    from llmops_kernel.services.query.ask import answered

    with answered(
        sql,
        store=current().store,
        parameters=parameters,
        timeout_s=timeout_s,
        report=default_progress(),
    ) as (answer, notices):
        for notice in notices:
            warnings.warn(notice, stacklevel=2)
        return answer.frame()


def doctor(*, run: bool = False, timeout_s: float = 150.0) -> DoctorReport:
    """Check this machine and this installation; the result prints one line a check.

    `run` also trains a tiny model for 20 steps on a temporary cluster, for at most `timeout_s`.
    """
    from llmops_kernel.services.doctor import examine

    return examine(with_run=run, timeout_s=timeout_s)


def demo(
    workspace: str | Path | None = None,
    *,
    max_steps: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Fine-tune SmolLM2-135M on the shipped data; return the run as soon as it is submitted.

    Starts cluster `local` and prepares the model where needed. `workspace` is another folder
    with `lora.train.yaml` and its data; `max_steps` replaces the config's number of steps.
    """
    from llmops_kernel.services.demo import start_demo

    record = start_demo(
        None if workspace is None else Path(workspace),
        max_steps=max_steps,
        progress=progress or default_progress(),
    )
    return Run(current(), record.run_id)


def bench(
    config: str | Path,
    overrides: Sequence[str] = (),
    *,
    cluster: str = "local",
    runs: int = 5,
    kinds: Sequence[Kind] = ("warm", "cold"),
    progress: Progress | None = None,
) -> LoopFigures:
    """Submit one config warm and cold alternately; return the times to the first step.

    `config` is a training config, a script config or a Python script, and `overrides` are the
    changes to it or the script's arguments. `runs` is the number of submissions of each kind. Runs
    that did not start the intended way are not counted. The cluster is started if needed, and kept
    running.
    Raises RunFailedError for the first run that fails.
    """
    from llmops_kernel.services.bench import LoopBench

    report = progress or default_progress() or (lambda text: None)
    loop = LoopBench(
        Path(config), overrides, cluster=cluster, kinds=kinds, runs=runs, report=report
    )
    loop.run()
    return loop.figures


def mine(
    data: str | Path,
    run: str | Run = "last",
    output: str | Path | None = None,
    *,
    negatives: int = 4,
    margin: float = 0.05,
    relative: bool = False,
    skip: int = 0,
    replace: bool = False,
    corpus: str | None = None,
    scored: str | None = None,
    cluster: str = "local",
    force: bool = False,
    overrides: Overrides = (),
    progress: Progress | None = None,
) -> Mined:
    """Give the rows of `embed` hard negatives: the nearest texts that do not answer a query.

    `data` is a table with `query` and `positive`, or a training config. The model of `run` scores
    all texts, those of `corpus` (`FILE:COLUMN`) too, and rows are written to `output` with up to
    `negatives` more: no known positive, and none nearer than the positive's similarity less
    `margin` (`relative`: a share of it); `skip` leaves out the nearest. `replace` drops those that
    rows have. `scored` is an earlier scoring to go on with, `overrides` are changes of its config.
    Raises ConfigError, DataError, RunStateError, RunFailedError.
    """
    from llmops_kernel.metrics.hard_negatives import Rule
    from llmops_kernel.services.scoring.mine import Mining

    rule = Rule(negatives=negatives, margin=margin, relative=relative, skip=skip, replace=replace)
    ref, store = run if isinstance(run, str) else run.id, current().store
    mining = Mining(data, ref, output, store=store, rule=rule, corpus=corpus, force=force)
    scoring = scoring_of(mining, scored, cluster=cluster, overrides=overrides, progress=progress)
    scoring.wait()
    return mining.write(scoring.id)


def scoring_of(
    mining: Mining,
    scored: str | None,
    *,
    cluster: str,
    overrides: Overrides,
    progress: Progress | None,
) -> Run:
    """Submit the scoring of a mining, or return the one that is there. Raises RunStateError."""
    backend = current()
    if scored is not None:
        run = Run(backend, backend.store.resolve(scored))
        mining.check_scored(run.id)
        return run
    target = Cluster(cluster, provider=backend.provider_for(cluster), backend=backend)
    with mining.scoring() as (config, folder):
        return target.score(config, workspace=folder, overrides=overrides, progress=progress)


# --- What the model will see of a config's data, as an object that a notebook shows ---


class RowPreview:
    """One row after the chat template, with what counts for the loss."""

    def __init__(self, shown: service.ShownRow) -> None:
        self.shown = shown
        """Its tokens, each with its text, its ids and whether the loss counts it."""

    def __repr__(self) -> str:
        return "\n".join(row_lines([self.shown])).rstrip()

    def _repr_html_(self) -> str:
        return row_html(self.shown)

    def __str__(self) -> str:
        return row_head(self.shown)


class DataPreview:
    """Figures of the training and evaluation rows, and some rows as the model sees them."""

    def __init__(self, job: service.PreviewJob, found: service.DataPreview) -> None:
        self._job = job
        self.report = found
        """Everything that was found, as a pydantic model."""

    @property
    def facts(self) -> dict[str, str]:
        """What was found, one sentence each."""
        return {fact.label: fact.text for fact in facts(self.report)}

    @property
    def warnings(self) -> dict[str, str]:
        """Those of the facts that a user should look at before a run."""
        return {fact.label: fact.text for fact in facts(self.report) if fact.level == "warning"}

    @property
    def rows(self) -> Sequence[RowPreview]:
        """The rows that are shown, of the side that was asked for."""
        return [RowPreview(shown) for shown in self.report.rows]

    def row(self, number: int) -> RowPreview:
        """Return one row whole, by its number from 1. Raises DataError."""
        return RowPreview(service.preview_row(self._job, number))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, as `llmops data --json` prints it."""
        return self.report.model_dump(mode="json")

    def __repr__(self) -> str:
        return text_of(self.report)

    def _repr_html_(self) -> str:
        return html_of(self.report)


def data_preview(
    config: ConfigLike,
    overrides: Overrides = (),
    *,
    rows: int = service.MOST_ROWS,
    show: int = 5,
    side: service.Side = "train",
    workspace: str | Path | None = None,
    timeout_s: float = service.TIMEOUT_S,
    **settings: Any,
) -> DataPreview:
    """Show the data of a training config as the model will see it; starts nothing.

    At most `rows` rows of each source are tokenised, from all over it; `side` is whose rows are
    shown. `settings` change fields of the config, such as `max_length=256`. Needs no cluster, only
    the tokenizer. Raises ConfigError, DataError, HookError, ModelError.
    """
    job = service.job_of(
        config, overrides=overrides, settings=settings, workspace=workspace, rows=rows, side=side
    ).model_copy(update={"num_shown": show})
    return DataPreview(job, service.preview(job, timeout_s=timeout_s))


# --- What a training needs, before it is submitted ---


class PlanTable:
    """One plan or several, which a notebook shows as text, table and stacked bars."""

    def __init__(self, plans: Sequence[plan_service.Planned]) -> None:
        self.plans = tuple(plans)
        """The plan of the config as it is comes first."""

    @property
    def fits(self) -> bool | None:
        """Whether the first fits; None where that is not known."""
        return self.plans[0].plan.fits

    @property
    def fastest(self) -> plan_service.Planned | None:
        """The one that fits and makes most tokens a second."""
        return plan_service.fastest(self.plans)

    def to_frame(self) -> pd.DataFrame:
        """Return a row a plan: bytes, seconds, shares 0..1; None where unknown."""
        import pandas as pd

        rows = []
        for one in self.plans:
            values = one.to_dict()
            speed, cost = values["speed"] or {}, values["cost"] or {}
            rows.append(
                {
                    "plan": one.name,
                    "fits": values["fits"],
                    **{f"memory.{part}": size for part, size in values["memory"].items()},
                    "memory": values["memory_total"],
                    "host_memory": values["host_needed"],
                    "largest_micro_batch": values["largest_micro_batch"],
                    "tokens_per_second": speed.get("tokens_per_second"),
                    "mfu": speed.get("mfu"),
                    "step_s": speed.get("step_s"),
                    "device_hours": cost.get("device_hours"),
                    "money": cost.get("money"),
                }
            )
        return pd.DataFrame(rows).set_index("plan")

    def picture(self) -> bytes:
        """Return a PNG: memory by what it is for, a bar a plan."""
        return plan_views.picture([(one.name, one.to_dict()) for one in self.plans])

    def __repr__(self) -> str:
        first = plan_views.facts(self.plans[0].to_dict())
        width = max(map(len, first))
        text = "\n".join(
            f"{label if not number else '':{width}}  {line}"
            for label, lines in first.items()
            for number, line in enumerate(lines.splitlines())
        )
        others = [", ".join(plan_views.row(one.name, one.to_dict())) for one in self.plans[1:]]
        return "\n".join([text, *others])

    def _repr_html_(self) -> str:
        first = escape(repr(PlanTable(self.plans[:1])))
        image = base64.b64encode(self.picture()).decode()
        body = f'<pre>{first}</pre><img src="data:image/png;base64,{image}">'
        if len(self.plans) == 1:
            return body
        head = "".join(f"<th>{name}</th>" for name in plan_views.COLUMNS)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
            for cells in (plan_views.row(one.name, one.to_dict()) for one in self.plans)
        )
        return f"{body}<table><tr>{head}</tr>{rows}</table>"


def plan(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    what_if: Sequence[str | Sequence[str]] = (),
    fastest: bool = False,
    trace: bool = False,
    cluster: str | Path = "local",
    workspace: str | Path | None = None,
    **guess: Any,
) -> PlanTable:
    """Return memory, speed and cost that are expected of a training. Nothing is started.

    `cluster` is the template whose machines and prices are meant. Each of `what_if`, such as
    `"parallelism.strategy=zero3"` or a list of changes, is planned beside it; `fastest` looks for
    the fastest settings that fit. `trace` runs two steps on tensors without memory too, in a
    process of its own (PyTorch), and compares. `guess` says what neither config nor template does:
    `device` (`"H100 SXM"`), `mean_length` in tokens, `label_share` 0..1, `rows`, `network` in
    bytes a second, `model_config` (path of a `config.json`). What is assumed instead is listed.
    Raises ConfigError, ModelError.
    """
    changes = [[one] if isinstance(one, str) else list(one) for one in what_if]
    plans = plan_service.plans(
        config,
        overrides,
        changes,
        with_fastest=fastest,
        with_trace=trace,
        cluster=cluster,
        guess=Guess(**guess),
        workspace=workspace,
    )
    return PlanTable(plans)


def plan_grid(
    config: ConfigLike,
    variations: Mapping[str, Sequence[Any]],
    *,
    cluster: str | Path = "local",
    workspace: str | Path | None = None,
    **guess: Any,
) -> PlanTable:
    """Return the plan of each combination of values that the config's rules allow.

    `variations`: values by field, such as `{"parallelism.strategy": ["zero2", "zero3"]}`. The rest
    is that of `plan`.
    """
    plans = plan_service.plan_grid(
        config,
        variations,
        cluster=cluster,
        guess=Guess(**guess),
        workspace=workspace,
    )
    return PlanTable(plans)
