"""A page of Lab as a user has it: commands, themes, pictures, and what the socket brought."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.browser.lab import ARTIFACTS, PICTURES, Lab

# The last of our plugins registers these commands. What is asked for before the layout is restored
# would be undone by it. Polled: a promise that is awaited is lost if the page loads itself again.
_READY = """() => {
  const app = window.jupyterapp;
  if (app && window.llmopsTestApp !== app) {
    window.llmopsTestApp = app;
    app.restored.then(() => { window.llmopsTestRestored = true; });
  }
  return window.llmopsTestRestored
    && app.commands.hasCommand('llmops:open-run')
    && app.commands.hasCommand('llmops:show-clusters')
    && !document.querySelector('#jupyterlab-splash');
}"""
SIZES = ((1280, 900), (1920, 1080))
NARROW = ((1100, 900), (1920, 1080))
THEMES = ("Light", "Dark")


@contextmanager
def opened(chromium: Any, lab: Lab, name: str, *, width: int, height: int) -> Iterator[LabPage]:
    """A page with Lab in it. However its test ends, `<name>-last-look` shows the last state."""
    page = chromium.new_page(viewport={"width": width, "height": height})
    tab = LabPage(page, lab)
    tab.open()
    yield tab
    tab.last_look(f"{name}-last-look")
    page.close()


class LabPage:
    """One browser tab; notes each message of our websocket and each complaint of the console."""

    def __init__(self, page: Any, lab: Lab) -> None:
        self.page, self.lab = page, lab
        self.errors: list[str] = []
        self.frames: list[tuple[dict[str, Any], bytes]] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("websocket", self._watch)

    def open(self, path: str = "", *, reset: bool = True) -> None:
        self.page.goto(self.lab.page_url(path, reset=reset))
        self._settle()

    def reload(self) -> None:
        self.page.reload()
        self._settle()

    def _settle(self) -> None:
        self.page.wait_for_function(_READY, timeout=60_000)

    def command(self, command: str, **arguments: Any) -> None:
        """Not awaited: many commands end only when their dialog does."""
        self.page.evaluate(
            "([id, args]) => void window.jupyterapp.commands.execute(id, args)",
            [command, arguments],
        )

    def menu_item(self, label: str) -> Any:
        """An entry of the open menu; Lumino only hides what does not fit."""
        shown = self.page.locator(".lm-Menu-item:not(.lm-mod-hidden) .lm-Menu-itemLabel")
        return shown.get_by_text(label)

    def theme(self, name: str) -> None:
        self.command("apputils:change-theme", theme=f"JupyterLab {name}")
        light = "true" if name == "Light" else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")

    def shots(self, name: str, sizes: tuple[tuple[int, int], ...] = SIZES) -> None:
        """In both themes and widths; test artefacts, to be looked at. The theme is light then."""
        for theme in reversed(THEMES) if PICTURES else ():
            self.theme(theme)
            for width, height in sizes:
                self.page.set_viewport_size({"width": width, "height": height})
                self.page.wait_for_timeout(400)  # The theme's stylesheet and the next frame.
                self._take(f"{name}-{theme.lower()}-{width}")
        self.theme("Light")
        width, height = sizes[0]
        self.page.set_viewport_size({"width": width, "height": height})

    def shot(self, name: str) -> None:
        """As it is."""
        if PICTURES:
            self._take(name)

    def _take(self, name: str) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=str(ARTIFACTS / f"{name}.png"))

    def last_look(self, name: str) -> None:
        """For whoever wants to know why a test failed: a picture, and the console's complaints."""
        self._take(name)
        (ARTIFACTS / f"{name}.txt").write_text("\n".join(self.errors))

    def steps_received(self, run_id: str) -> list[int]:
        """Step numbers of all rows that this tab was sent, in order of arrival."""
        found: list[int] = []
        for header, payload in self.frames:
            if header["topic"] == f"run/{run_id}" and header["kind"] == "rows":
                floats = struct.unpack(f"<{len(payload) // 4}f", payload)
                found += [int(step) for step in floats[:: len(header["data"]["columns"])]]
        return found

    def _watch(self, socket: Any) -> None:
        if socket.url.split("?")[0].endswith("/llmops/live"):
            socket.on("framereceived", self._note)

    def _note(self, payload: str | bytes) -> None:
        if isinstance(payload, str):
            self.frames.append((json.loads(payload), b""))
        else:
            (length,) = struct.unpack("<I", payload[:4])
            self.frames.append((json.loads(payload[4 : 4 + length]), payload[4 + length :]))
