"""When schedules are due, around clock changes and after a time without a scheduler."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from llmops_kernel.errors import ConfigError
from llmops_kernel.services.schedules import check_times, newest_due, times_after

BERLIN, UTC = "Europe/Berlin", "UTC"
# Clocks in Berlin go from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25.


def at(text: str, zone: str = UTC) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp()


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("0 2 * * *", UTC, "2026-01-31T02:00", ["2026-02-01T02:00Z", "2026-02-02T02:00Z"]),
        ("0 2 29 2 *", UTC, "2026-01-01", ["2028-02-29T02:00Z", "2032-02-29T02:00Z"]),
        ("0 12 * * 1-5", UTC, "2026-05-01T12:00", ["2026-05-04T12:00Z", "2026-05-05T12:00Z"]),
        ("0 0 13 * 5", UTC, "2026-03-01", ["2026-03-06T00:00Z", "2026-03-13T00:00Z"]),  # or
        ("0 9 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T07:00Z", "2026-03-30T07:00Z"]),
        # Skipped by the clock: right after the skip, once.
        ("30 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]),
        # Shown twice by the clock: the first time only.
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]),
        ("30 2 * * *", BERLIN, "2026-10-25T02:30+01:00", ["2026-10-26T01:30Z"]),
        ("45 2 * * *", BERLIN, "2026-10-25T02:30+01:00", ["2026-10-26T01:45Z"]),
        # Every hour is an hour of real time, on both days.
        ("0 * * * *", BERLIN, "2026-03-29T01:00", ["2026-03-29T01:00Z", "2026-03-29T02:00Z"]),
        ("0 * * * *", BERLIN, "2026-10-25T02:00+02:00", ["2026-10-25T01:00Z", "2026-10-25T02:00Z"]),
    ],
)
def test_due_times(cron: str, zone: str, after: str, expected: list[str]) -> None:
    times = times_after(cron, zone, after_s=at(after, zone))
    assert list(islice(times, len(expected))) == [at(text) for text in expected]


@pytest.mark.parametrize(
    ("cron", "after", "now", "expected"),
    [
        ("0 2 * * *", "2026-01-01T02:00", "2026-01-02T01:59", None),
        ("0 2 * * *", "2026-01-01T02:00", "2026-01-02T02:00", ("2026-01-02T02:00", 0)),
        ("0 2 * * *", "2026-01-01T02:00", "2026-01-09T12:00", ("2026-01-09T02:00", 7)),
        ("* * * * *", "2020-01-01", "2026-01-09T12:00:30", ("2026-01-09T12:00", None)),
        ("* * * * *", "2020-01-01", "2026-01-09T12:00", ("2026-01-09T12:00", None)),
        ("0 2 * * *", "2026-01-09", "2026-01-01", None),  # The clock was set back.
    ],
)
def test_what_was_missed_is_due_once(
    cron: str, after: str, now: str, expected: tuple[str, int | None] | None
) -> None:
    due = newest_due(cron, UTC, after_s=at(after), now_s=at(now))
    assert due == (expected and (at(expected[0]), expected[1]))


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("0 2 * *", UTC),
        ("0 0 2 * * *", UTC),  # With seconds, which Kubernetes does not have.
        ("60 2 * * *", UTC),
        ("0 2 31 2 *", UTC),
        ("@daily", UTC),
        ("0 2 * * *", "Europe/Atlantis"),
        ("0 2 * * *", "../etc/passwd"),
    ],
)
def test_wrong_times_are_refused(cron: str, zone: str) -> None:
    with pytest.raises(ConfigError):
        check_times(cron, zone)
