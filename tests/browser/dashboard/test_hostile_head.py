"""A dashboard whose head is an attacker's, in a real browser that is logged in to Jupyter."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.dashboard.hostile_head import NAME, HostileHead, hostile_head
from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# What code in the frame of Ray's page would try, if there were any of the attacker's.
_THEFT = """async jupyter => {
  const tries = {
    cookies: () => document.cookie || Promise.reject('none'),
    parent: () => parent.document.title,
    top: () => top.document.cookie,
    stored: () => { top.localStorage.getItem('x'); return 'read'; },
    kernels: async () => (await fetch(jupyter + '/api/kernels', {credentials: 'include'})).text(),
    start: async () => (await fetch(jupyter + '/api/kernels',
      {method: 'POST', credentials: 'include', mode: 'cors', body: '{}'})).text(),
    view: async () => (await fetch(jupyter + '/llmops/dashboard-views',
      {method: 'POST', credentials: 'include', body: '{"cluster": "evil"}'})).text(),
    moved: async () => (await fetch('redirect?/api/kernels')).text()
      .then(text => text.includes('execution_state') ? text : Promise.reject('not followed')),
    climbed: async () => (await fetch('redirect?/%2e%2e/%2e%2e/%2e%2e/api/kernels')).text()
      .then(text => text.includes('execution_state') ? text : Promise.reject('not followed')),
    ...Object.fromEntries(['evil.js', 'api/evil.js', jupyter + '/llmops/dashboard/evil/evil.js']
      .map(src => [`script ${src}`, () => new Promise((done, failed) => {
        const script = Object.assign(document.createElement('script'), {src});
        script.onload = () => done('ran'); script.onerror = () => failed('blocked');
        document.head.append(script); })])),
    ...Object.fromEntries(['socket', '/api/kernels/x/channels', '/terminals/websocket/1',
      '/llmops/live'].map(path => [`socket ${path}`, () => new Promise((done, failed) => {
        const url = new URL(path, path[0] === '/' ? jupyter : location.href);
        const socket = new WebSocket(url.href.replace('http', 'ws'));
        socket.onopen = () => done('open'); socket.onerror = () => failed('refused'); })]))
  };
  const stolen = {};
  for (const [name, attempt] of Object.entries(tries)) {
    try { stolen[name] = String(await attempt()); } catch {}
  }
  return stolen;
}"""


@pytest.fixture
def asked(lab: Lab) -> Iterator[list[str]]:
    with hostile_head(lab.home, base=lab.url) as asked:
        yield asked


def kernels(lab: Lab) -> set[str]:
    with urllib.request.urlopen(f"{lab.url}/api/kernels?token={lab.token}", timeout=10) as answer:
        return {kernel["id"] for kernel in json.load(answer)}


def turn_dark(tab: LabPage, shell: Any) -> Any:
    """Change JupyterLab's theme; return the frame of Ray's page once it was loaded again in it."""
    tab.theme("Dark")
    for _ in range(300):
        dark = [frame for frame in tab.page.frames if "?theme=dark" in frame.url]
        if dark:
            shell.frame_locator("#ray").get_by_text("evil-job").first.wait_for(timeout=30_000)
            # Its scroll bars too: Ray's page colours all but those.
            assert dark[0].evaluate("document.documentElement.style.colorScheme") == "dark"
            return dark[0]
        tab.page.wait_for_timeout(100)
    raise AssertionError([frame.url for frame in tab.page.frames])


def cookie_values(page: Any) -> set[tuple[str, str]]:
    return {(cookie["name"], cookie["value"]) for cookie in page.context.cookies()}


def test_nothing_that_a_head_answers_runs(lab: Lab, lab_page: Any, asked: list[str]) -> None:
    before = kernels(lab)
    tab = LabPage(lab_page, lab)
    tab.open()
    tab.command("llmops:open-dashboard", cluster=NAME, page="jobs")
    shell = lab_page.frame_locator("iframe[title^='Jobs page']")
    # Ray's page from this machine, with the attacker's job as text.
    shell.frame_locator("#ray").get_by_text("evil-job").first.wait_for(timeout=30_000)
    frame = next(frame for frame in lab_page.frames if "dashboard-views" in frame.url)
    assert frame.evaluate("self.origin") == "null"
    assert frame.evaluate(_THEFT, lab.url) == {}
    tab.shot("hostile-head")
    turn_dark(tab, shell).evaluate("location.hash = '#/metrics'")
    chart = shell.frame_locator("#ray").frame_locator("iframe").first
    chart.get_by_text("Pages of other sites are not embedded").wait_for()
    tab.shot("hostile-head-charts")
    assert not any(path == "/" or path.startswith("/static") for path in asked)
    assert "PWNED" not in [frame.title() for frame in lab_page.frames]

    # The same in tabs of their own, with the user's login.
    cookies = cookie_values(lab_page)
    place = f"{lab.url}/llmops/dashboard/{NAME}"
    for path in ("page.html", "evil.js", "x.svg", "api/jobs/", "redirect?/page.html", "static/x"):
        lab_page.goto(f"{place}/{path}")
        lab_page.wait_for_timeout(300)
        assert lab_page.title() != "PWNED", path
        assert lab_page.evaluate("self.origin") == "null", path
        assert path.partition("?")[0] in lab_page.url or "page.html" in lab_page.url
    lab_page.goto(f"{place}/#/jobs")
    lab_page.frame_locator("#ray").get_by_text("evil-job").first.wait_for(timeout=30_000)
    # Ray's page without ours around it is led back to it.
    lab_page.goto(lab_page.frames[1].url)
    lab_page.wait_for_url(f"{place}/#/jobs**")

    assert cookie_values(lab_page) == cookies
    assert kernels(lab) == before
    assert not any(path.startswith("/loot") for path in asked)


def test_without_pages_of_its_version_there_is_a_reason_and_a_link(
    lab: Lab, lab_page: Any, asked: list[str]
) -> None:
    HostileHead.version = "2.9.1"
    lab_page.goto(f"{lab.url}/llmops/dashboard/{NAME}/?token={lab.token}#/logs")
    lab_page.get_by_text("runs Ray 2.9.1").wait_for()
    assert lab_page.get_by_role("link").get_attribute("rel") == "noopener noreferrer"
    assert lab_page.locator("#ray").is_hidden()
    LabPage(lab_page, lab).shot("hostile-head-other-version")
    assert "/" not in asked
