"""What was found in the data of a config, as one sentence a fact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llmops_kernel.config.counted import counted
from llmops_kernel.store.preview_job import (
    CheckedSource,
    DataCheck,
    DataPreview,
    Epoch,
    Finding,
    Leaks,
    SourceReport,
    SourceRows,
    SourceShare,
)
from llmops_kernel.views import format as fmt

Level = Literal["plain", "warning"]


@dataclass(frozen=True)
class Fact:
    label: str
    text: str
    level: Level = "plain"
    """`warning`: something that a user should look at before the run."""


def facts(found: DataPreview) -> list[Fact]:
    """Return the facts in the order in which they are read."""
    return [
        *_shares(found.sources),
        *_source_facts(found, found.train),
        *(Fact("chat template", text, "warning") for text in found.template),
        *_run_facts(found),
        *_eval_facts(found),
    ]


def _shares(sources: Sequence[SourceShare]) -> Iterator[Fact]:
    """Yield rows, weight and shares of an epoch of each of several sources."""
    for number, one in enumerate(sources, start=1):
        about = "about " if one.is_estimate else ""
        rows = fmt.DASH if one.total_rows is None else counted(one.total_rows, "row")
        seen = fmt.DASH if one.rows is None else f"{about}{one.rows:,}"
        yield Fact(
            f"source {number}",
            f"{one.source}: {about}{rows}, weight {one.weight:g}, {seen} in an epoch:"
            f" {fmt.percent(one.row_share)} of the rows and"
            f" {'about ' if one.is_sample and one.token_share is not None else ''}"
            f"{fmt.percent(one.token_share)} of the tokens",
        )


def _source_facts(found: DataPreview, report: SourceReport) -> Iterator[Fact]:
    yield Fact("rows", f"{of_rows(report)} of {report.source}{_where(report)}")
    if report.num_broken:
        what = f"{counted(report.num_broken, 'row')} cannot be read and are skipped"
        yield Fact("broken", f"{what}: {'; '.join(report.broken)}", "warning")
    formats = format_fact(report, has_hook=found.has_hook, is_auto=found.format == "auto")
    # Several sources may well have several formats.
    yield replace(formats, level="plain") if found.sources else formats
    if report.num_unanswered:
        yield unanswered_fact(report)
    yield from field_facts(report)
    lengths = report.lengths
    yield Fact(
        "tokens a row",
        f"{lengths.shortest:,} to {lengths.longest:,}, median {lengths.median:,},"
        f" mean {lengths.mean:,.1f}{_sampled(report)}",
    )
    if report.num_split:
        yield split_fact(report, found.max_length)
    if report.num_apart:
        yield apart_fact(report)
    if report.num_cut or not report.num_split:
        yield cut_fact(report, found.max_length)
    yield Fact(
        "loss",
        f"{fmt.percent(_share(report.num_loss, report.num_tokens))} of the tokens count"
        f" for the loss{_sampled(report)}",
    )
    yield masked_fact(report)
    yield duplicates_fact(report)


def field_facts(report: SourceRows) -> Iterator[Fact]:
    """Yield what becomes of fields that are not what a user may think, and columns not used."""
    for one in report.fields:
        yield Fact("fields", one.text, "warning")
    if report.unused:
        more = f" and {len(report.unused) - 8:,} more" if len(report.unused) > 8 else ""
        yield Fact("columns", f"not used: {', '.join(report.unused[:8])}{more}")


def split_fact(report: SourceReport, max_length: int) -> Fact:
    share = fmt.percent(report.num_split / report.num_rows)
    return Fact(
        "long texts",
        f"{report.num_split:,} of {of_rows(report)} ({share}) are longer than"
        f" max_length={max_length:,} and are split: {counted(report.num_used, 'row')}"
        f" become {report.num_sequences:,} sequences",
    )


def apart_fact(report: SourceReport) -> Fact:
    share = fmt.percent(report.num_apart / report.num_rows)
    return Fact(
        "answers",
        f"{report.num_apart:,} of {of_rows(report)} ({share}) have answers that the chat template"
        " writes otherwise when others follow; each of these is trained in a sequence of its own:"
        f" {counted(report.num_used, 'row')} become {report.num_sequences:,} sequences",
    )


def cut_fact(report: SourceReport, max_length: int) -> Fact:
    what = f"longer than max_length={max_length:,}"
    if not report.num_cut:
        return Fact("cut", f"none of {of_rows(report)} is {what}")
    share = fmt.percent(report.num_cut / report.num_rows)
    text = f"{report.num_cut:,} of {of_rows(report)} ({share}) are {what} and are truncated"
    return Fact("cut", text, "warning")


def is_untrainable(report: SourceReport) -> bool:
    """Return whether no row has a token to train on, which makes a run fail."""
    return report.num_masked == report.num_rows and not report.is_sample


def masked_fact(report: SourceReport) -> Fact:
    what = "no token that counts for the loss"
    if not report.num_masked:
        return Fact("no loss", f"each of {of_rows(report)} has tokens that count for the loss")
    if is_untrainable(report):
        text = f"no row has a token that counts for the loss ({of_rows(report)}): a run would fail"
        return Fact("no loss", text, "warning")
    share = fmt.percent(report.num_masked / report.num_rows)
    numbers = f": row {_numbers(report.masked)}" if report.masked else ""
    text = f"{report.num_masked:,} of {of_rows(report)} ({share}) have {what} and are skipped"
    return Fact("no loss", text + numbers, "warning")


def unanswered_fact(report: SourceRows) -> Fact:
    numbers = f": row {_numbers(report.unanswered)}" if report.unanswered else ""
    of = of_rows(report, report.num_compared)
    text = f"{report.num_unanswered:,} of {of} have no answer of the assistant{numbers}"
    return Fact("answers", text, "warning")


def duplicates_fact(report: SourceRows) -> Fact:
    compared = of_rows(report, report.num_compared)
    if not report.num_duplicates:
        return Fact("duplicates", f"none among {compared}")
    share = fmt.percent(report.num_duplicates / report.num_compared)
    groups = [group for group in report.duplicates if len(group) > 1]
    named = "; ".join(f"rows {_numbers(group)}" for group in groups)
    text = f"{report.num_duplicates:,} of {compared} ({share}) repeat another one"
    return Fact("duplicates", f"{text}: {named}" if named else text, "warning")


def _run_facts(found: DataPreview) -> Iterator[Fact]:
    one, about = found.epoch, "about " if found.epoch.is_estimate else ""
    batch = counted(one.micro_batch_size, "packed sequence" if one.packing else "row")
    yield Fact("padding", f"{_padding(one)} in micro batches of {batch}{_batching(one)}")
    if one.steps is None:
        yield Fact("epoch", f"{fmt.DASH} (the number of rows is not known before all are read)")
    else:
        size = f"{counted(one.global_batch_size, 'row')} a step"
        kind = "packed sequences" if one.packing else "sequences"
        is_other = one.packing or found.train.num_split + found.train.num_apart > 0
        packed = f"{fmt.count(one.sequences)} {kind}, " if is_other else ""
        yield Fact(
            "epoch",
            f"{about}{fmt.count(one.steps)} steps, {packed}{fmt.count(one.tokens)} tokens;"
            f" {size}: {counted(one.micro_batch_size, 'row')} x"
            f" {counted(one.num_workers, 'worker')} x"
            f" {counted(one.accumulation_steps, 'accumulation step')}",
        )
    yield Fact("run", _run(one))


def _run(one: Epoch) -> str:
    if one.run_steps is None or not one.steps:
        return f"{fmt.count(one.run_steps)} steps"
    about = "about " if one.is_estimate else ""
    epochs = one.run_steps / one.steps
    if one.has_max_steps:
        return f"{one.run_steps:,} steps, {about}{epochs:.2f} epochs"
    return f"{about}{fmt.count(one.run_steps)} steps, {epochs:.2f} epochs"


def _padding(one: Epoch) -> str:
    cpu, gpu = one.padding_cpu, one.padding_gpu
    about = "about " if one.is_estimate and (cpu or gpu) else ""
    if cpu is None or gpu is None or fmt.percent(cpu) == fmt.percent(gpu):
        return about + fmt.percent(gpu if cpu is None else cpu)
    return f"{about}{fmt.percent(cpu)} (on GPUs {fmt.percent(gpu)}: widths are multiples of 8)"


def _batching(one: Epoch) -> str:
    if one.padding_free:
        return ", joined without padding"
    return ", rows of like length together" if one.groups_by_length else ""


def _eval_facts(found: DataPreview) -> Iterator[Fact]:
    if found.eval is None or found.leaks is None:
        yield Fact("evaluation", "no evaluation rows")
        return
    report, leaks = found.eval, found.leaks
    yield Fact("evaluation", f"{of_rows(report)} of {report.source}{_where(report)}")
    unanswered = [unanswered_fact(report)] if report.num_unanswered else []
    cut, masked = cut_fact(report, found.max_length), masked_fact(report)
    for fact in (*unanswered, *field_facts(report), cut, masked, duplicates_fact(report)):
        if fact.level == "warning":
            yield Fact(f"evaluation, {fact.label}", fact.text, fact.level)
    train = of_rows(found.train, found.train.num_compared)
    yield leaks_fact(leaks, report, f"{train} of training")


def leaks_fact(leaks: Leaks, report: SourceRows, training: str) -> Fact:
    """Return how many rows of evaluation are among those of `training`, in words."""
    held_out = of_rows(report, report.num_compared)
    if not leaks.rows:
        return Fact("leaks", f"none of {held_out} of evaluation is among {training}")
    named = "; ".join(f"row {mine:,} is training row {other:,}" for mine, other in leaks.pairs)
    text = f"{leaks.rows:,} of {held_out} of evaluation are among {training}"
    return Fact("leaks", f"{text}: {named}" if named else text, "warning")


def of_rows(report: SourceRows, read: int | None = None) -> str:
    """`762 rows`, `2,000 of 1,200,000 rows`, `2,000 of about 1.20 M rows`.

    `read`: how many were looked at; None: as many as were tokenised.
    """
    tokenised = report.num_rows if isinstance(report, SourceReport) else report.num_compared
    seen = tokenised if read is None else read
    if report.total_rows is None:
        return f"the first {seen:,} rows"
    if seen >= report.total_rows:
        return counted(seen, "row")
    total = f"about {fmt.count(report.total_rows)}" if report.is_estimate else None
    return f"{seen:,} of {total or f'{report.total_rows:,}'} rows"


def _where(report: SourceReport) -> str:
    known = report.total_rows is not None and report.where
    return f" ({report.where})" if known and report.is_sample else ""


def _sampled(report: SourceReport) -> str:
    return f" (of {of_rows(report)})" if report.is_sample else ""


def format_fact(report: SourceRows, *, has_hook: bool, is_auto: bool) -> Fact:
    """Return the formats of the rows; several of them are mostly a mistake, unless a hook chose."""
    is_mixed = len(report.formats) > 1 and not has_hook
    text = _formats(report, has_hook=has_hook, is_auto=is_auto)
    return Fact("format", text, "warning" if is_mixed else "plain")


def _formats(report: SourceRows, *, has_hook: bool, is_auto: bool) -> str:
    rows = sum(report.formats.values())
    names = [
        name if count == rows else f"{name} ({counted(count, 'row')})"
        for name, count in report.formats.items()
    ]
    if has_hook:
        return ", ".join(names) + ", made by format_example"
    return ", ".join(names) + (", chosen by format: auto" if is_auto else "")


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)


# --- What a check has found in rows, as sentences with what to do next ---


_REMEDIES = {
    "format": "set data.format to the one that you mean, and correct the other rows",
    "fields": "if that is not meant, change the rows, or read them in format_example(row)",
    "answers": "write the assistant's answer into them, or delete them",
    "cut": "raise data.max_length, or shorten the rows",
    "no loss": "raise data.max_length, or check that the answers are not empty",
    "duplicates": "delete the repeated rows, unless they are meant to count more",
    "leaks": "delete them from one of the two: the evaluation is for rows the model has not seen",
    "broken": "correct or delete these rows",
}


def all_findings(found: DataCheck) -> list[Finding]:
    """Return the sentences of all sources, and those that were found already."""
    sources = [one for source in found.sources for one in _of_source(found, source)]
    return [*found.findings, *sources]


def _of_source(found: DataCheck, one: CheckedSource) -> Iterator[Finding]:
    yield Finding(path=one.path, level="note", message=_read(one))
    for fact in _facts(found, one):
        if fact.level == "warning":
            is_fatal = fact.label == "no loss" and one.path != "data.eval" and _is_untrainable(one)
            yield Finding(
                path=one.path,
                level="problem" if is_fatal else "warning",
                message=fact.text,
                remedy=_REMEDIES[fact.label],
            )
        elif fact.label == "columns":
            yield Finding(path=one.path, level="note", message=f"columns {fact.text}")


def _facts(found: DataCheck, one: CheckedSource) -> Iterator[Fact]:
    rows = one.rows
    formats = format_fact(rows, has_hook=found.has_hook, is_auto=False)
    yield Fact("format", f"the rows have several formats: {formats.text}", formats.level)
    if rows.num_broken:
        what = f"{rows.num_broken:,} of the rows that were read are broken and are skipped"
        yield Fact("broken", f"{what}: {'; '.join(rows.broken)}", "warning")
    if rows.num_unanswered:
        yield unanswered_fact(rows)
    yield from field_facts(rows)
    if isinstance(rows, SourceReport):
        yield cut_fact(rows, found.max_length)
        yield masked_fact(rows)
    yield duplicates_fact(rows)
    if one.leaks is not None:
        yield leaks_fact(one.leaks, rows, "the training rows that were read")


def _is_untrainable(one: CheckedSource) -> bool:
    return isinstance(one.rows, SourceReport) and is_untrainable(one.rows)


def _read(one: CheckedSource) -> str:
    """`800 of 12,000 rows of a.jsonl (from all over the file) were read and tokenised`."""
    rows = one.rows
    is_tokenised = isinstance(rows, SourceReport)
    seen = of_rows(rows)
    where = f" ({rows.where})" if rows.where and rows.total_rows is not None else ""
    done = "read, formatted and tokenised" if is_tokenised else "read and formatted"
    verb = "was" if seen == "1 row" else "were"
    return f"{seen} of {rows.source}{where} {verb} {done}"
