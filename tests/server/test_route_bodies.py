"""Every route that takes a body: too large, no JSON, of another shape, told in words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.server.base import MAX_BODY_BYTES
from llmops_kernel.store.store import RunStore
from tests.server.conftest import Fetch
from tests.server.routes_table import RUN, WITH_BODY
from tests.server.runs import make_run

HEAVY = "x" * (MAX_BODY_BYTES + 1)
CONFIG = "model: tiny-llama\ndata: rows.jsonl\n"


@pytest.fixture(autouse=True)
def run(home: Path) -> Path:
    """Named before the server, which asks for its home once."""
    return make_run(RunStore(), RUN, steps=2)


async def reported(api: Fetch, path: str, code: int, **kwargs: Any) -> dict[str, Any]:
    answer = await api(path.removeprefix("llmops/"), **kwargs)
    assert answer.code == code, (path, answer.code, answer.body[:300])
    assert b"Traceback" not in answer.body
    found: dict[str, Any] = json.loads(answer.body)
    assert found["message"]
    return found


async def test_a_body_that_is_too_large_is_reported_with_a_remedy(api: Fetch) -> None:
    for row in WITH_BODY:
        body = json.dumps({"text": HEAVY})
        found = await reported(api, row.path, 413, method=row.method, body=body)
        assert f"{MAX_BODY_BYTES:,}" in found["message"]
        assert found["remedy"]


@pytest.mark.parametrize("body", ["{", "{} {}", "not json", "\0", '{"text": "\\ud800"}', b"\xff{}"])
async def test_what_is_no_json_is_reported(api: Fetch, body: str | bytes) -> None:
    for row in WITH_BODY:
        found = await reported(api, row.path, 400, method=row.method, body=body)
        assert "JSON" in found["message"], found


@pytest.mark.parametrize("body", ["[]", "1", "null", '"text"', '[{"text": ""}]'])
async def test_another_shape_is_reported(api: Fetch, body: str) -> None:
    for row in WITH_BODY:
        await reported(api, row.path, 422, method=row.method, body=body)


async def test_a_field_that_nobody_knows_is_named(api: Fetch) -> None:
    for row in WITH_BODY:
        found = await reported(api, row.path, 422, method=row.method, body='{"sudo": 1}')
        assert "sudo" in found["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "image/png", ""])
async def test_what_a_body_calls_itself_does_not_matter(api: Fetch, kind: str) -> None:
    for row in WITH_BODY:
        headers = {"Content-Type": kind}
        body = '{"sudo": 1}'
        await reported(api, row.path, 422, method=row.method, body=body, headers=headers)


async def test_forms_are_no_json(api: Fetch) -> None:
    forms = {
        "application/x-www-form-urlencoded": b"text=a&path=b",
        "multipart/form-data; boundary=x": b'--x\r\nContent-Disposition: form-data; name="a"'
        b"\r\n\r\n1\r\n--x--\r\n",
    }
    for kind, body in forms.items():
        for row in WITH_BODY:
            headers = {"Content-Type": kind}
            await reported(api, row.path, 400, method=row.method, body=body, headers=headers)


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PATCH", f"runs/{RUN}", {"title": "x" * 201}, "title"),
        ("PATCH", f"runs/{RUN}", {"note": "x" * 100_001}, "note"),
        ("PATCH", f"runs/{RUN}", {"starred": "perhaps"}, "starred"),
        ("POST", "runs", {"overrides": "seed=1"}, "overrides"),
        ("POST", "runs", {"text": {"model": 1}}, "text"),
        ("POST", f"runs/{RUN}/resubmit", {"overrides": [1]}, "overrides.0"),
        ("POST", "clusters/lab/scale", {"num_cpus": -1}, "num_cpus"),
        ("POST", "configs/complete", {"kind": "train", "text": "", "line": "x"}, "line"),
        ("POST", "configs/render", {"kind": "train", "data": [1]}, "data"),
        ("POST", "clusters", {"yaml": "x" * 262_145}, "yaml"),
    ],
)
async def test_a_wrong_value_names_its_field(
    api: Fetch, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    found = await reported(api, path, 422, method=method, body=json.dumps(body))
    assert field in found["message"]


HOSTILE = (
    "[" * 100_000,
    "- " * 50_000,  # Each level keeps its path: without a limit that fills the memory.
    "{a: " * 10_000,
    "\0",
    "&a [*a]",
    "a: !!python/object/apply:os.system ['id']",
    "seed: " + "9" * 5_000,
    "!!int x",
    "a: &a [1,1,1,1,1,1,1,1,1]\n"
    + "".join(
        f"b{i}: &b{i} [{','.join(['*a' if not i else f'*b{i - 1}'] * 9)}]\n" for i in range(9)
    ),
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:8].strip())
async def test_hostile_yaml_is_refused_within_seconds(api: Fetch, text: str) -> None:
    place = {"line": 1, "column": 3}
    for path, more in (
        ("check", {}),
        ("complete", place),
        ("hover", place),
    ):
        for kind in ("train", "cluster"):
            body = json.dumps({"kind": kind, "text": text, **more})
            answer = await api(f"configs/{path}", method="POST", body=body, request_timeout=60)
            assert answer.code in (200, 422), (path, answer.body[:200])
    for path, field in (("runs", "text"), (f"runs/{RUN}/resubmit", "text"), ("clusters", "yaml")):
        body = json.dumps({field: text})
        await reported(api, path, 422, method="POST", body=body, request_timeout=60)


@pytest.mark.parametrize(
    "override",
    [
        "x",
        "=",
        "a.b.c=1",
        "seed=" + "9" * 5_000,
        "model=\0",
        "." * 5_000 + "=1",
        "seed=" + "[" * 5_000,
    ],
    ids=lambda text: text[:8],
)
async def test_hostile_overrides_are_diagnosed(api: Fetch, override: str) -> None:
    body = json.dumps({"kind": "train", "text": CONFIG, "overrides": [override]})
    answer = await api("configs/check", method="POST", body=body, request_timeout=60)
    assert answer.code == 200
    body = json.dumps({"text": CONFIG, "overrides": [override], "cluster": "nobody"})
    answer = await api("runs", method="POST", body=body, request_timeout=60)
    assert answer.code in (404, 422), answer.body[:200]


@pytest.mark.parametrize("data", [{"seed": float("nan")}, {"a": {"b": float("inf")}}, {"": {}}])
async def test_odd_values_of_a_form_are_written_all_the_same(
    api: Fetch, data: dict[str, Any]
) -> None:
    for kind in ("train", "cluster"):
        body = {"kind": kind, "data": data}
        answer = await api("configs/render", method="POST", body=json.dumps(body))
        assert answer.code == 200, answer.body


@pytest.mark.parametrize("line", [-1, 0, 10**9, 10**30])
async def test_a_cursor_may_stand_anywhere(api: Fetch, line: int) -> None:
    for column in (-5, 0, 10**18):
        for path in ("complete", "hover"):
            body = json.dumps({"kind": "train", "text": CONFIG, "line": line, "column": column})
            answer = await api(f"configs/{path}", method="POST", body=body)
            assert answer.code in (200, 422), answer.body


async def _spoken(port: int, message: bytes) -> bytes:
    """What the server says to bytes on a bare connection, until it closes or waits."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(message)
    try:
        return await asyncio.wait_for(reader.read(), 3)
    except TimeoutError:
        return b""
    finally:
        writer.close()


async def test_lengths_that_lie_harm_nobody(
    api: Fetch, http_server: Any, jp_http_port: int, jp_auth_header: dict[str, str]
) -> None:
    proof = f"Host: 127.0.0.1\r\nAuthorization: {jp_auth_header['Authorization']}\r\n"
    head = f"POST /user/someone/llmops/configs/check HTTP/1.1\r\n{proof}"
    close = "Connection: close\r\n"
    pieces = b"".join(b"10000\r\n" + b" " * 65536 + b"\r\n" for _ in range(17)) + b"0\r\n\r\n"
    chunked = await _spoken(
        jp_http_port, f"{head}{close}Transfer-Encoding: chunked\r\n\r\n".encode() + pieces
    )
    assert chunked.startswith(b"HTTP/1.1 413"), chunked[:200]
    for lie in (
        "Content-Length: 99999999999999",
        "Content-Length: -1",
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Content-Length: 100",  # More than comes: it waits, and nobody else does.
        "Content-Length: 0",  # Less than comes: the rest is no request.
    ):
        said = await _spoken(jp_http_port, f"{head}{close}{lie}\r\n\r\n{{}}".encode())
        assert b"Traceback" not in said
        assert b" 200 OK" not in said
        assert b" 500 " not in said
    assert (await api("handshake")).code == 200
