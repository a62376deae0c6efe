"""What a check has found in rows, as sentences with what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from llmops_kernel.store.preview_job import CheckedSource, DataCheck, Finding, SourceReport
from llmops_kernel.views.data_preview.facts import (
    Fact,
    cut_fact,
    duplicates_fact,
    field_facts,
    format_fact,
    is_untrainable,
    leaks_fact,
    masked_fact,
    of_rows,
    unanswered_fact,
)

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
