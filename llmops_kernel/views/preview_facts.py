"""Findings in the data of a config, as one sentence per fact."""

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


def facts(preview: DataPreview) -> list[Fact]:
    """Return the facts in the order in which they are read."""
    return [
        *_shares(preview.sources),
        *_source_facts(preview, preview.train),
        *(Fact("chat template", text, "warning") for text in preview.template),
        *_run_facts(preview),
        *_eval_facts(preview),
    ]


def _shares(sources: Sequence[SourceShare]) -> Iterator[Fact]:
    """Yield rows, weight and shares of an epoch of each of several sources."""
    for number, share in enumerate(sources, start=1):
        prefix = "about " if share.is_estimate else ""
        rows = fmt.DASH if share.total_rows is None else counted(share.total_rows, "row")
        rows_seen = fmt.DASH if share.rows is None else f"{prefix}{share.rows:,}"
        yield Fact(
            f"source {number}",
            f"{share.source}: {prefix}{rows}, weight {share.weight:g}, {rows_seen} in an epoch:"
            f" {fmt.percent(share.row_share)} of the rows and"
            f" {'about ' if share.is_sample and share.token_share is not None else ''}"
            f"{fmt.percent(share.token_share)} of the tokens",
        )


def _source_facts(preview: DataPreview, report: SourceReport) -> Iterator[Fact]:
    yield Fact("rows", f"{of_rows(report)} of {report.source}{_where(report)}")
    if report.num_broken:
        broken = f"{counted(report.num_broken, 'row')} cannot be read and are skipped"
        yield Fact("broken", f"{broken}: {'; '.join(report.broken)}", "warning")
    formats = format_fact(report, has_hook=preview.has_hook, is_auto=preview.format == "auto")
    # Several sources may well have several formats.
    yield replace(formats, level="plain") if preview.sources else formats
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
        yield split_fact(report, preview.max_length)
    if report.num_apart:
        yield apart_fact(report)
    if report.num_cut or not report.num_split:
        yield cut_fact(report, preview.max_length)
    yield Fact(
        "loss",
        f"{fmt.percent(_share(report.num_loss, report.num_tokens))} of the tokens count"
        f" for the loss{_sampled(report)}",
    )
    yield masked_fact(report)
    yield duplicates_fact(report)


def field_facts(report: SourceRows) -> Iterator[Fact]:
    """Yield what becomes of fields that are not what a user may think, and columns not used."""
    for field in report.fields:
        yield Fact("fields", field.text, "warning")
    if report.unused:
        num_more = f" and {len(report.unused) - 8:,} more" if len(report.unused) > 8 else ""
        yield Fact("columns", f"not used: {', '.join(report.unused[:8])}{num_more}")


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
    description = f"longer than max_length={max_length:,}"
    if not report.num_cut:
        return Fact("cut", f"none of {of_rows(report)} is {description}")
    share = fmt.percent(report.num_cut / report.num_rows)
    text = f"{report.num_cut:,} of {of_rows(report)} ({share}) are {description} and are truncated"
    return Fact("cut", text, "warning")


def is_untrainable(report: SourceReport) -> bool:
    """Return whether no row has a token to train on, which makes a run fail."""
    return report.num_masked == report.num_rows and not report.is_sample


def masked_fact(report: SourceReport) -> Fact:
    description = "no token that counts for the loss"
    if not report.num_masked:
        return Fact("no loss", f"each of {of_rows(report)} has tokens that count for the loss")
    if is_untrainable(report):
        text = f"no row has a token that counts for the loss ({of_rows(report)}): a run would fail"
        return Fact("no loss", text, "warning")
    share = fmt.percent(report.num_masked / report.num_rows)
    numbers = f": row {_numbers(report.masked)}" if report.masked else ""
    text = (
        f"{report.num_masked:,} of {of_rows(report)} ({share}) have {description} and are skipped"
    )
    return Fact("no loss", text + numbers, "warning")


def unanswered_fact(report: SourceRows) -> Fact:
    numbers = f": row {_numbers(report.unanswered)}" if report.unanswered else ""
    total = of_rows(report, report.num_compared)
    text = f"{report.num_unanswered:,} of {total} have no answer of the assistant{numbers}"
    return Fact("answers", text, "warning")


def duplicates_fact(report: SourceRows) -> Fact:
    compared = of_rows(report, report.num_compared)
    if not report.num_duplicates:
        return Fact("duplicates", f"none among {compared}")
    share = fmt.percent(report.num_duplicates / report.num_compared)
    groups = [group for group in report.duplicates if len(group) > 1]
    examples = "; ".join(f"rows {_numbers(group)}" for group in groups)
    text = f"{report.num_duplicates:,} of {compared} ({share}) repeat another one"
    return Fact("duplicates", f"{text}: {examples}" if examples else text, "warning")


def _run_facts(preview: DataPreview) -> Iterator[Fact]:
    epoch, prefix = preview.epoch, "about " if preview.epoch.is_estimate else ""
    micro = epoch.micro_batch_size
    row = "packed sequence" if epoch.packing else "row"
    batch = "as many rows as fit" if micro is None else counted(micro, row)
    yield Fact("padding", f"{_padding(epoch)} in micro batches of {batch}{_batching(epoch)}")
    if epoch.steps is None:
        yield Fact("epoch", f"{fmt.DASH} (the number of rows is not known before all are read)")
    else:
        size = f"{counted(epoch.global_batch_size, 'row')} a step"
        kind = "packed sequences" if epoch.packing else "sequences"
        is_other = epoch.packing or preview.train.num_split + preview.train.num_apart > 0
        packed = f"{fmt.count(epoch.sequences)} {kind}, " if is_other else ""
        yield Fact(
            "epoch",
            f"{prefix}{fmt.count(epoch.steps)} steps, {packed}{fmt.count(epoch.tokens)} tokens;"
            f" {size}: {_parts_of_step(epoch)}",
        )
    yield Fact("run", _run(epoch))


def _parts_of_step(epoch: Epoch) -> str:
    workers = counted(epoch.num_workers, "worker")
    if epoch.micro_batch_size is None:
        return f"{counted(epoch.accumulation_steps, 'row')} x {workers}, in passes that fit"
    micro, passes = counted(epoch.micro_batch_size, "row"), epoch.accumulation_steps
    return f"{micro} x {workers} x {counted(passes, 'accumulation step')}"


def _run(epoch: Epoch) -> str:
    if epoch.run_steps is None or not epoch.steps:
        return f"{fmt.count(epoch.run_steps)} steps"
    prefix = "about " if epoch.is_estimate else ""
    epochs = epoch.run_steps / epoch.steps
    if epoch.has_max_steps:
        return f"{epoch.run_steps:,} steps, {prefix}{epochs:.2f} epochs"
    return f"{prefix}{fmt.count(epoch.run_steps)} steps, {epochs:.2f} epochs"


def _padding(epoch: Epoch) -> str:
    cpu, gpu = epoch.padding_cpu, epoch.padding_gpu
    prefix = "about " if epoch.is_estimate and (cpu or gpu) else ""
    if cpu is None or gpu is None or fmt.percent(cpu) == fmt.percent(gpu):
        return prefix + fmt.percent(gpu if cpu is None else cpu)
    return f"{prefix}{fmt.percent(cpu)} (on GPUs {fmt.percent(gpu)}: widths are multiples of 8)"


def _batching(epoch: Epoch) -> str:
    if epoch.padding_free:
        return ", joined without padding"
    return ", rows of like length together" if epoch.groups_by_length else ""


def _eval_facts(preview: DataPreview) -> Iterator[Fact]:
    if preview.eval is None or preview.leaks is None:
        yield Fact("evaluation", "no evaluation rows")
        return
    report, leaks = preview.eval, preview.leaks
    yield Fact("evaluation", f"{of_rows(report)} of {report.source}{_where(report)}")
    unanswered = [unanswered_fact(report)] if report.num_unanswered else []
    cut, masked = cut_fact(report, preview.max_length), masked_fact(report)
    for fact in (*unanswered, *field_facts(report), cut, masked, duplicates_fact(report)):
        if fact.level == "warning":
            yield Fact(f"evaluation, {fact.label}", fact.text, fact.level)
    train = of_rows(preview.train, preview.train.num_compared)
    yield leaks_fact(leaks, report, f"{train} of training")


def leaks_fact(leaks: Leaks, report: SourceRows, training: str) -> Fact:
    """Return how many rows of evaluation are among those of `training`, in words."""
    held_out = of_rows(report, report.num_compared)
    if not leaks.rows:
        return Fact("leaks", f"none of {held_out} of evaluation is among {training}")
    examples = "; ".join(
        f"row {eval_row:,} is training row {training_row:,}"
        for eval_row, training_row in leaks.pairs
    )
    text = f"{leaks.rows:,} of {held_out} of evaluation are among {training}"
    return Fact("leaks", f"{text}: {examples}" if examples else text, "warning")


def of_rows(report: SourceRows, read: int | None = None) -> str:
    """Return `762 rows`, `2,000 of 1,200,000 rows`, `2,000 of about 1.20 M rows`.

    `read`: how many were looked at; None: as many as were tokenised.
    """
    tokenised = report.num_rows if isinstance(report, SourceReport) else report.num_compared
    num_rows = tokenised if read is None else read
    if report.total_rows is None:
        return f"the first {num_rows:,} rows"
    if num_rows >= report.total_rows:
        return counted(num_rows, "row")
    total = f"about {fmt.count(report.total_rows)}" if report.is_estimate else None
    return f"{num_rows:,} of {total or f'{report.total_rows:,}'} rows"


def _where(report: SourceReport) -> str:
    is_known = report.total_rows is not None and report.where
    return f" ({report.where})" if is_known and report.is_sample else ""


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


# --- Findings of a check, as sentences with a remedy ---


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


def all_findings(check: DataCheck) -> list[Finding]:
    """Return the sentences of all sources, and those that were found already."""
    sources = [finding for source in check.sources for finding in _of_source(check, source)]
    return [*check.findings, *sources]


def _of_source(check: DataCheck, source: CheckedSource) -> Iterator[Finding]:
    yield Finding(path=source.path, level="note", message=_read(source))
    for fact in _facts(check, source):
        if fact.level == "warning":
            is_fatal = (
                fact.label == "no loss" and source.path != "data.eval" and _is_untrainable(source)
            )
            yield Finding(
                path=source.path,
                level="problem" if is_fatal else "warning",
                message=fact.text,
                remedy=_REMEDIES[fact.label],
            )
        elif fact.label == "columns":
            yield Finding(path=source.path, level="note", message=f"columns {fact.text}")


def _facts(check: DataCheck, source: CheckedSource) -> Iterator[Fact]:
    rows = source.rows
    formats = format_fact(rows, has_hook=check.has_hook, is_auto=False)
    yield Fact("format", f"the rows have several formats: {formats.text}", formats.level)
    if rows.num_broken:
        broken = f"{rows.num_broken:,} of the rows that were read are broken and are skipped"
        yield Fact("broken", f"{broken}: {'; '.join(rows.broken)}", "warning")
    if rows.num_unanswered:
        yield unanswered_fact(rows)
    yield from field_facts(rows)
    if isinstance(rows, SourceReport):
        yield cut_fact(rows, check.max_length)
        yield masked_fact(rows)
    yield duplicates_fact(rows)
    if source.leaks is not None:
        yield leaks_fact(source.leaks, rows, "the training rows that were read")


def _is_untrainable(source: CheckedSource) -> bool:
    return isinstance(source.rows, SourceReport) and is_untrainable(source.rows)


def _read(source: CheckedSource) -> str:
    """Return `800 of 12,000 rows of a.jsonl (from all over the file) were read and tokenised`."""
    rows = source.rows
    is_tokenised = isinstance(rows, SourceReport)
    rows_read = of_rows(rows)
    place = f" ({rows.where})" if rows.where and rows.total_rows is not None else ""
    actions = "read, formatted and tokenised" if is_tokenised else "read and formatted"
    verb = "was" if rows_read == "1 row" else "were"
    return f"{rows_read} of {rows.source}{place} {verb} {actions}"
