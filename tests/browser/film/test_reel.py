"""The reel: which screenshots are kept, how long each is shown, and the file that is written."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.browser.film.reel import FRAME_MS, Reel, evenly


def _png(number: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (64, 32), (number * 40 % 256, number % 256, 0)).save(data, "PNG")
    return data.getvalue()


class _Page:
    """Looks different at each screenshot."""

    def __init__(self) -> None:
        self.shots = itertools.count()

    def screenshot(self) -> bytes:
        return _png(next(self.shots))


@pytest.fixture
def reel() -> Reel:
    return Reel(_Page().screenshot, lambda _: None)


def test_a_picture_that_stays_is_one_frame() -> None:
    still = Reel(lambda: _png(1), lambda _: None)
    still.take(300)
    still.take(500)
    assert [frame.shown_ms for frame in still.frames] == [800]
    still.caption("another sentence")
    still.take()
    assert [frame.shown_ms for frame in still.frames] == [800, FRAME_MS]


def test_a_long_run_is_shown_in_the_time_it_is_given(reel: Reel) -> None:
    looks = iter([False] * 40 + [True])
    reel.until(lambda: next(looks), shown_ms=1000, timeout_s=60)
    assert [frame.shown_ms for frame in reel.frames] == [200] * 5
    assert reel.frames[-1].picture == _png(40)


def test_what_never_comes_is_an_error_with_its_caption(reel: Reel) -> None:
    reel.caption("Watch the loss")
    with pytest.raises(TimeoutError, match="Watch the loss: not over after 0 s"):
        reel.until(lambda: False, shown_ms=1000, timeout_s=0)


def test_the_file_is_an_animation_with_all_frames(reel: Reel, tmp_path: Path) -> None:
    reel.caption("Submit it")
    for _ in range(3):
        reel.take(400)
    reel.write(tmp_path / "x.webp", quality=60)
    with Image.open(tmp_path / "x.webp") as written:
        assert (written.n_frames, written.width) == (3, 64)
        assert written.height > 32  # The caption stands above the page.
    assert "3 frames, 1.2 s" in reel.summary(tmp_path / "x.webp")


@given(count=st.integers(1, 300), most=st.integers(1, 60))
def test_frames_that_are_kept_reach_to_the_last(count: int, most: int) -> None:
    pictures = [b"%d" % number for number in range(count)]
    kept = evenly(pictures, most)
    assert len(kept) == min(count, most)
    assert kept[-1] == pictures[-1]
    assert sorted(set(kept), key=kept.index) == kept
