"""Screenshots with the time that each is shown, put together to one animated picture."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

FRAME_MS = 200
_PAUSE_S = 0.6
"""Between two screenshots of a run: more of them would take its processors."""
_BAR, _TEXT, _SIZE = (33, 33, 33), (255, 255, 255), 17
_BAR_HEIGHT = 34


@dataclass(frozen=True)
class Frame:
    """One screenshot, PNG, and what stands above it."""

    picture: bytes
    shown_ms: int
    caption: str


class Reel:
    """`screenshot` returns a PNG of the page; `wait` lets the page go on for some seconds."""

    def __init__(self, screenshot: Callable[[], bytes], wait: Callable[[float], None]) -> None:
        self._screenshot, self._wait = screenshot, wait
        self._caption = ""
        self.frames: list[Frame] = []

    def caption(self, text: str) -> None:
        """Stands above the frames that follow."""
        self._caption = text

    def take(self, shown_ms: int = FRAME_MS) -> None:
        self._add(Frame(self._screenshot(), shown_ms, self._caption))

    def until(self, is_over: Callable[[], bool], *, shown_ms: int, timeout_s: float) -> None:
        """Take frames until then, show them in `shown_ms`, and write how much faster that is."""
        begin_s = time.monotonic()
        taken = [self._screenshot()]
        while not is_over():
            if time.monotonic() - begin_s > timeout_s:
                raise TimeoutError(f"{self._caption}: not over after {timeout_s:g} s")
            self._wait(_PAUSE_S)
            taken.append(self._screenshot())
        faster = 1000 * (time.monotonic() - begin_s) / shown_ms
        caption = self._caption + (f"   (shown {faster:.0f} times faster)" if faster >= 1.5 else "")
        kept = evenly(taken, shown_ms // FRAME_MS)
        for picture in kept:
            self._add(Frame(picture, shown_ms // len(kept), caption))

    def write(self, path: Path, *, quality: int) -> None:
        """Write an animated WebP that repeats."""
        first, *others = [_drawn(frame) for frame in self.frames]
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=[frame.shown_ms for frame in self.frames],
            loop=0,
            quality=quality,
            method=6,
            minimize_size=True,
        )

    def write_frames(self, folder: Path) -> None:
        """Write each frame as a PNG, to be looked at."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, frame in enumerate(self.frames):
            _drawn(frame).save(folder / f"{number:03}-{frame.shown_ms}ms.png")

    def summary(self, path: Path) -> str:
        """Return how many frames were written to `path`, their length and size."""
        length_s = sum(frame.shown_ms for frame in self.frames) / 1000
        return f"{path}: {len(self.frames)} frames, {length_s:.1f} s, {path.stat().st_size:,} bytes"

    def _add(self, frame: Frame) -> None:
        last = self.frames[-1] if self.frames else None
        if last and (last.picture, last.caption) == (frame.picture, frame.caption):
            self.frames[-1] = replace(last, shown_ms=last.shown_ms + frame.shown_ms)
        else:
            self.frames.append(frame)


def evenly(pictures: list[bytes], most: int) -> list[bytes]:
    """Return at most `most` of them, from the first to the last, equally far from each other."""
    if len(pictures) <= most:
        return pictures
    if most == 1:
        return pictures[-1:]
    return [pictures[n * (len(pictures) - 1) // (most - 1)] for n in range(most)]


def _drawn(frame: Frame) -> Image.Image:
    page = Image.open(io.BytesIO(frame.picture)).convert("RGB")
    whole = Image.new("RGB", (page.width, page.height + _BAR_HEIGHT), _BAR)
    whole.paste(page, (0, _BAR_HEIGHT))
    font = ImageFont.load_default(_SIZE)
    ImageDraw.Draw(whole).text(
        (14, _BAR_HEIGHT // 2), frame.caption, fill=_TEXT, font=font, anchor="lm"
    )
    return whole
