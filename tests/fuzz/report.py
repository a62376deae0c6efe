"""Says at the end of pytest's report how many random examples ran and how long they took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.fuzz.examples import LIMIT_S, PROPERTY


def lines_of(found: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return one line for all of it, then one for each test that its time limit ended early."""
    ran = list(found)
    if not ran:
        return []
    total, took_s = sum(one["ran"] for _, one in ran), sum(one["took_s"] for _, one in ran)
    head = f"fuzz: {total:,} examples of {len(ran)} tests took {took_s:.0f} s"
    return [
        f"{head} (a test at most {LIMIT_S:.0f} s)",
        *(
            f"fuzz: {name} ended after {one['took_s']:.0f} s with {one['ran']:,} of"
            f" {one['wanted']:,} examples"
            for name, one in ran
            if one["ran"] < one["wanted"]
        ),
    ]


def reported(stats: dict[str, list[Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return what tests recorded, by their names, also in processes of pytest-xdist."""
    return [
        (report.nodeid.rpartition("::")[2], value)
        for reports in stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
