"""Windows, tails and searches of logs, up to one of a gigabyte."""

from __future__ import annotations

import io
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import ConfigError
from llmops_kernel.store import log_scan
from llmops_kernel.store.log_text import LogText

GIB = 1024**3


def lines_of(count: int) -> bytes:
    return b"".join(b"line %06d of the log\n" % number for number in range(count))


@pytest.fixture
def log(tmp_path: Path) -> LogText:
    path = tmp_path / "driver.log"
    path.write_bytes(lines_of(10_000))
    return LogText(path)


def test_windows_follow_each_other_without_gap_or_overlap(log: LogText):
    text, offset = "", 0
    while offset < log.size:
        window = log.window(offset, 10_000)
        assert window.offset == offset
        text, offset = text + window.text, window.end
    assert text.encode() == lines_of(10_000)


def test_windows_backwards_too(log: LogText):
    text, offset = "", log.size
    while offset > 0:
        window = log.before(offset, 10_000)
        assert window.end == offset
        text, offset = window.text + text, window.offset
    assert text.encode() == lines_of(10_000)


def test_a_window_begins_with_the_line_that_holds_its_offset(log: LogText):
    window = log.window(25 * 100 + 7, 1000)
    assert window.text.startswith("line 000104 of") or window.text.startswith("line 0001")
    assert window.text.endswith("\n")


def test_the_line_that_is_being_written_comes_apart(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthr")
    window = LogText(path).window(0)
    assert (window.text, window.partial, window.end, window.size) == ("one\ntwo\n", "thr", 8, 11)
    with path.open("ab") as file:
        file.write(b"ee\n")
    window = LogText(path).window(window.end)
    assert (window.text, window.partial) == ("three\n", "")
    assert LogText(path).end(7).text == "two\nthree\n"


def test_a_missing_or_empty_log_is_empty(tmp_path: Path):
    missing = LogText(tmp_path / "none")
    assert (missing.size, missing.tail(5), missing.window(0).text) == (0, "", "")
    assert missing.search("x").hits == []
    assert LogText(b"").end().text == ""


@pytest.mark.parametrize("count", [1, 2, 3, 100])
@pytest.mark.parametrize("text", ["a\nb\nc\n", "a\nb\nc", "", "\n\n", "50%\r100%\nend\n"])
def test_tail_is_the_last_lines(text: str, count: int):
    lines = text.split("\n")
    whole = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    assert LogText(text.encode()).tail(count) == "".join(whole[-count:])


def test_bytes_that_are_no_text_are_shown_all_the_same():
    assert "\ufffd" in LogText(b"\xff\xfe\n").window(0).text


def test_search_goes_on_where_it_stopped(log: LogText):
    found, start = [], 0
    while start is not None:
        reported = log.search("00 of", start=start, limit=7)
        found += reported.hits
        start = reported.next
    assert len(found) == 100
    assert found[1] == (100 * 23, 101 * 23, "line 000100 of the log")
    assert log.window(found[1][0], 100).text.startswith("line 000100")


def test_search_backwards_finds_the_nearest_first(log: LogText):
    reported = log.search("99 of", start=log.size, backwards=True, limit=2)
    assert [text[5:11] for _, _, text in reported.hits] == ["009999", "009899"]
    reported = log.search("99 of", start=reported.next, backwards=True, limit=1)
    assert reported.hits[0][2][5:11] == "009799"


def test_regular_expressions_and_case(log: LogText):
    assert [t[5:11] for _, _, t in log.search(r"line 00(0|1)123\b", regex=True).hits] == [
        "000123",
        "001123",
    ]
    assert log.search("LINE 000001").hits == []
    assert len(log.search("LINE 000001", ignore_case=True).hits) == 1
    assert len(log.search("^LINE 000001", regex=True, ignore_case=True).hits) == 1
    assert len(LogText(b"one\ntwo\n").search("^t.o$", regex=True).hits) == 1


def test_a_pattern_that_cannot_be_read_says_so(log: LogText):
    with pytest.raises(ConfigError, match="regular expression") as reported:
        log.search("(", regex=True)
    assert reported.value.remedy


def test_a_pattern_that_does_not_end_is_cut_off(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"a" * 60 + b"b\n")
    begun_s = time.monotonic()
    with pytest.raises(ConfigError, match="too long"):
        LogText(path).search("(a+)+$", regex=True, budget_s=0.5)
    assert time.monotonic() - begun_s < 10


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(alphabet="ab\r", max_size=9), max_size=40),
    st.booleans(),
    st.integers(4, 64),
    st.booleans(),
)
def test_any_log_is_searched_whole_in_both_directions(
    lines: list[str], ended: bool, chunk: int, backwards: bool
):
    data = ("\n".join(lines) + ("\n" if ended else "")).encode()
    expected, offset = [], 0
    for line in data.split(b"\n"):
        if b"ab" in line:
            expected.append(offset)
        offset += len(line) + 1
    find = log_scan.plain_find("ab", ignore_case=False)
    found, start = [], len(data) if backwards else 0
    while start is not None:
        page = log_scan.scan(
            io.BytesIO(data), find, size=len(data), start=start, backwards=backwards, limit=2,
            chunk_bytes=max(chunk, 12),  # Lines longer than a chunk are cut: it holds the longest.
        )  # fmt: skip
        found += [at for at, _, _ in page["matches"]]
        start = page["next"]
    assert found == (expected[::-1] if backwards else expected)


@pytest.fixture
def huge(tmp_path: Path) -> Iterator[LogText]:
    """One GiB of lines, a word in the middle and one at the end."""
    path = tmp_path / "huge.log"
    block = lines_of(45_590)[: 1 << 20]
    block = block[: block.rfind(b"\n") + 1]
    with path.open("wb") as file:
        for number in range(GIB // len(block)):
            if number == 512:
                file.write(b"a needle in the middle\n")
            file.write(block)
        file.write(b"the last needle\n")
    yield LogText(path)
    path.unlink()


def test_a_gigabyte_is_read_in_parts(huge: LogText):
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun_s = time.process_time()
    assert huge.tail(3).endswith("the last needle\n")
    middle = huge.window(huge.size // 2)
    assert 0 < len(middle.text) <= 256 * 1024
    assert huge.before(middle.offset).end == middle.offset
    assert huge.end().text.endswith("the last needle\n")
    quick_s = time.process_time() - begun_s
    found, start, longest_s = [], 0, 0.0
    while start is not None:
        begun_s = time.monotonic()
        reported = huge.search("needle", start=start)
        longest_s = max(longest_s, time.monotonic() - begun_s)
        found, start = found + reported.hits, reported.next
    assert [text for _, _, text in found] == ["a needle in the middle", "the last needle"]
    assert huge.search("needle", start=huge.size, backwards=True, limit=1).hits == found[-1:]
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert grown_kib < 64 * 1024
    assert quick_s < 1.0
    assert longest_s < 5.0  # 1.5 s are asked for; the rest forgives a busy disk.
