"""Paths, ids and numbers in requests: none reaches a file it should not, none breaks a handler."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from llmops_kernel.store.store import RunStore
from tests.server.conftest import Fetch
from tests.server.routes_table import CLUSTER, ROWS, RUN, SAFE
from tests.server.runs import make_run

SECRET = "content-of-another-folder"
LONG = "a" * 3_000
IDS = (
    *("..", ".", "..%2f..%2fetc", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%252e%252e%252fetc", "a%2fb"),
    *("a%00b", "%00", "%ff", "a%5c..%5cb", "%0d%0aX-Evil:%201", "%3Cscript%3E", "last~99", LONG),
    *("last~" + "9" * 40, "~root", "-rf", "%20", "%E2%80%AE"),
)
PATHS = (
    *(
        "../outside/x.train.yaml",
        "..",
        "a/../../outside/x.train.yaml",
        "/etc/passwd",
        "~/x.train.yaml",
    ),
    *(
        "link/x.train.yaml",
        "link",
        "file.train.yaml",
        "loop",
        "loop/x.train.yaml",
        "a\0b.train.yaml",
    ),
    *("..\\outside\\x.train.yaml", f"{LONG}.train.yaml", "a/" * 2_000 + "x.train.yaml", "", "."),
    *(
        "%2e%2e/outside/x.train.yaml",
        "folder.train.yaml",
        "home/runs/r-1/run.json",
        "file:///etc/passwd",
    ),
)


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One run with a log, in a home below Jupyter's root."""
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "root_dir" / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    folder = make_run(RunStore(), RUN, steps=2)
    (folder / "logs").mkdir()
    (folder / "logs" / "driver-1.log").write_text("a" * 5_000 + "!\n" + "line\n" * 1_000)
    return folder


@pytest.fixture(autouse=True)
def root(jp_root_dir: Path, tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.train.yaml").write_text(f"model: {SECRET}\n{SECRET}: 1\ndata: {SECRET}\n")
    (outside / f"{SECRET}.jsonl").write_text("{}\n")
    (jp_root_dir / "link").symlink_to(outside)
    (jp_root_dir / "file.train.yaml").symlink_to(outside / "x.train.yaml")
    (jp_root_dir / "loop").symlink_to(jp_root_dir / "loop")
    (jp_root_dir / "folder.train.yaml").mkdir()
    return jp_root_dir


def harmless(answer: Any) -> bool:
    text = (answer.body or b"").decode(errors="replace")
    reported = ("Traceback", 'File "', "site-packages", "root:x:0", SECRET)
    return answer.code < 500 and not any(word in text for word in reported)


def with_id(path: str, ref: str) -> str:
    named = (path.replace(f"{kind}/{name}", f"{kind}/{ref}", 1) for kind, name in NAMED)
    return next(text for text in named if text != path)


NAMED = (("runs", RUN), ("clusters", CLUSTER), ("dashboard", CLUSTER))
OF_ONE = [row for row in ROWS if any(f"{kind}/{name}" in row.path for kind, name in NAMED)]


@pytest.mark.parametrize("ref", IDS, ids=lambda text: text[:12])
async def test_an_id_is_no_path(api: Fetch, ref: str) -> None:
    for row in OF_ONE:
        path = with_id(row.path, ref).removeprefix("llmops/")
        answer = await api(path, method=row.method)
        assert answer.code in (302, 400, 403, 404, 405, 422), (row, answer.code, answer.body)
        assert answer.code != 302 or answer.headers["Location"].startswith("/user/someone/llmops/")
        assert harmless(answer), (row, answer.body)
        assert "X-Evil" not in answer.headers


async def test_who_is_not_there_is_reported_with_who_is(api: Fetch) -> None:
    for row in OF_ONE:
        path = row.path.removeprefix("llmops/")
        if "dashboard/" in path:
            continue  # A page for people, see `test_proxy`.
        body = None if row.method in SAFE else "{}"
        if path.endswith("/keep"):
            body = json.dumps({"for_s": 60})
        if path.endswith("/chat") and row.method not in SAFE:
            body = json.dumps({"prompt": "hello"})
        if path.startswith("clusters/"):
            answer = await api(f"{path}?action=delete", method=row.method, body=body)
            near = "none yet"
        else:
            answer = await api(
                with_id(path, "r-7") + "?path=x&text=x", method=row.method, body=body
            )
            near = RUN
        assert answer.code == 404, (row, answer.code, answer.body)
        found = json.loads(answer.body)
        assert found["remedy"], row
        assert near in found["message"] + found["remedy"], (row, found)


@pytest.mark.parametrize("path", PATHS, ids=lambda text: text[:14].replace("\0", "0"))
async def test_nothing_outside_the_root_is_read(api: Fetch, path: str) -> None:
    place = {"kind": "train", "text": "data: ", "line": 1, "column": 6, "path": path}
    asks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("clusters", {"path": path}),
        ("runs", {"path": path}),
        ("runs", {"path": path, "workspace": path}),
        ("runs", {"text": "model: m\ndata: d\n", "workspace": path}),
        ("configs/complete", place),
        ("configs/complete", {**place, "path": f"{path}/x.train.yaml"}),
        ("configs/check", {"kind": "train", "text": "data: d", "path": path, "with_files": True}),
    )
    for route, body in asks:
        answer = await api(route, method="POST", body=json.dumps(body))
        # A config may be checked and completed before its file is there.
        allowed = (200, 403, 404, 422) if route.startswith("configs/") else (403, 404, 422)
        assert answer.code in allowed, (route, answer.code, answer.body[:300])
        assert harmless(answer), (route, answer.body[:300])
    answer = await api(f"runs/{RUN}/file?path={quote(path)}")
    assert answer.code == 404
    assert harmless(answer)
    assert json.loads((await api("operations")).body) == []


async def test_what_leads_out_is_forbidden_and_what_is_missing_is_not_found(api: Fetch) -> None:
    for path, code in (
        *(("../outside/x.train.yaml", 403), ("link/x.train.yaml", 403), ("file.train.yaml", 403)),
        *(("a\0b", 403), ("a\\b", 403), ("nothing.yaml", 404), ("loop", 404), (LONG, 404)),
        ("/etc/passwd", 404),
    ):
        for body in ({"path": path}, {"text": "a: 1", "path": "x.train.yaml", "workspace": path}):
            answer = await api("runs", method="POST", body=json.dumps(body))
            expected = {code, 422} if "workspace" in body else {code}
            assert answer.code in expected, (body, answer.code, answer.body)


HUGE = "9" * 40
QUERIES = (
    *("offset=-1", f"offset={HUGE}", f"offset=-{HUGE}", f"before={HUGE}", "before=-7", "limit=-1"),
    *("limit=0", "limit=1e9", "limit=1000000000", f"limit={HUGE}", "offset=" + "9" * 5_000),
    *("attempt=-1", f"attempt={HUGE}", "attempt=x", "offset=%00", "offset=%ff", "limit=1&limit=x"),
    *("start=-1", f"start={HUGE}", f"start={HUGE}&backwards=1", "offset=٣", "limit="),
)


@pytest.mark.parametrize("query", QUERIES, ids=lambda text: text[:16])
async def test_absurd_numbers_are_reported_or_bounded(api: Fetch, query: str) -> None:
    for path in (
        "log?",
        "log/info?",
        "log/search?text=line&",
        "log/search?text=l&regex=1&",
        "log/download?",
    ):
        answer = await api(f"runs/{RUN}/{path}{query}")
        assert answer.code in (200, 400, 404, 422), (path, answer.code, answer.body[:200])
        assert harmless(answer)
        assert len(answer.body) < 200_000


PATTERNS = (
    *("(a+)+$", "(a|aa)+$", "(.*a){20}$", "(" * 500, "(?:" * 4_000 + ")" * 4_000, "a{99999999999}"),
    *(
        "[",
        "\\",
        "(?P<n",
        "\0",
        "x" * 20_000,
        '"' * 15_000,
        "(?P<a>a)(?P=a)" * 99,
        "$",
        "",
        "é",
        "(?i)(?x)",
    ),
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda text: text[:10].replace("\0", "0"))
async def test_no_pattern_holds_a_search_for_long(api: Fetch, pattern: str) -> None:
    for regex in (0, 1):
        began_s = time.monotonic()
        url = f"runs/{RUN}/log/search?text={quote(pattern)}&regex={regex}&ignore_case=1"
        answer = await api(url, request_timeout=30)
        assert answer.code in (200, 422), (answer.code, answer.body[:300])
        assert harmless(answer)
        assert time.monotonic() - began_s < 25


async def test_a_search_without_a_text_is_reported(api: Fetch) -> None:
    answer = await api(f"runs/{RUN}/log/search")
    assert (answer.code, "text" in json.loads(answer.body)["message"]) == (400, True)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "runs=",
        f"runs={RUN}",
        f"runs={RUN},x",
        f"runs={RUN},{RUN}",
        "runs=" + f"{RUN}," * 100,
        "runs=%00,..",
        "runs=a%2fb,c",
    ],
    ids=lambda text: text[:16],
)
async def test_a_comparison_of_nothing_is_reported(api: Fetch, query: str) -> None:
    answer = await api(f"compare?{query}")
    assert answer.code in (400, 404, 422), answer.body
    assert harmless(answer)


@pytest.mark.parametrize("kind", ["", "%00", "..%2fx", "TRAIN", "a" * 3_000])
async def test_an_unknown_kind_of_config_is_reported(api: Fetch, kind: str) -> None:
    for path in ("schema", "template"):
        answer = await api(f"configs/{path}?kind={kind}")
        assert answer.code == 422, answer.body
        assert harmless(answer)
