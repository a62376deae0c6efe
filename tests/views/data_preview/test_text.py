"""Rows and lengths as plain text and as HTML."""

from __future__ import annotations

from llmops_kernel.store.preview_job import Bin, Lengths
from llmops_kernel.views.preview_text import (
    html_of,
    plain_tokens,
    row_head,
    row_html,
    stretches,
    text_lines,
    text_of,
    visible,
)
from tests.views.data_preview.found import BINS, piece, preview, row


def test_tokens_are_marked_by_what_the_loss_counts() -> None:
    pieces = [
        piece("<|user|>", special=True),
        piece("what?"),
        piece(" six", "loss"),
        piece("<|end|>", "loss", special=True),
        piece(" gone", "cut"),
    ]
    assert plain_tokens(pieces) == "<|user|>what?« six<|end|>»[cut:  gone]"
    assert [one.text for one in stretches(pieces)] == [piece.text for piece in pieces]
    joined = stretches([piece("a"), piece("b"), piece("c", "loss")])
    assert [one.text for one in joined] == ["ab", "c"]


def test_every_character_is_seen_and_none_acts_on_the_terminal() -> None:
    assert visible("a\n\tb") == "a↵\n→b"
    assert visible("\x1b[31mred\x07") == "\\x1b[31mred\\x07"
    assert visible("a\r\nb\r") == "a\\r↵\nb\\x0d"
    assert visible("\u202eabc\u200b") == "\\u202eabc\\u200b"
    assert visible("naïve 東京 🦙") == "naïve 東京 🦙"


def test_max_length_is_drawn_between_the_bins_that_it_divides() -> None:
    lengths = Lengths(shortest=3, median=12, mean=11.5, longest=20, bins=BINS)
    lines = text_lines(lengths, 16, width=10)
    assert [line.strip().split("  ")[0] for line in lines[:2]] == ["1 to 8", "9 to 16"]
    assert lines[2].startswith("max_length 16 ---")
    assert lines[3].startswith("more than 16")
    assert lines[1].endswith("█" * 10)
    assert lines[3].endswith("▏")  # one row of eighty is still seen


def test_max_length_is_the_end_where_no_row_is_longer() -> None:
    lengths = Lengths(shortest=3, median=3, mean=3, longest=8, bins=BINS[:1])
    assert text_lines(lengths, 512)[-1].startswith("max_length 512 ---")


def test_lines_of_figures_fit_into_eighty_columns() -> None:
    text = text_of(preview(), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "a question «an answer»" in text


def test_a_row_says_what_is_not_shown() -> None:
    shown = row(piece("a"), num_tokens=900, num_hidden=899)
    text = text_of(preview(rows=[shown]))
    assert "row 17: chat, 900 tokens, 1 of them count for the loss" in text
    assert "... 899 more tokens (--row 17 shows all)" in text
    assert row_head(row(piece("a"), number=None)).startswith("a row: chat, 1 token,")


def test_html_escapes_what_comes_from_the_data() -> None:
    attack = "<script>alert(1)</script>"
    rows = [row(piece(attack, "loss"), format=attack)]
    html = html_of(preview(rows=rows, train=preview().train.model_copy(update={"source": attack})))
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 4
    assert 'title="counts for the loss"' in row_html(rows[0])


def test_bars_of_html_grow_with_their_rows() -> None:
    html = html_of(preview())
    assert "width:320px" in html  # the largest bin
    assert "width:12px" in html
    assert Bin(above=0, up_to=8, rows=3) in BINS
