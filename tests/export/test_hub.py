"""`--to hub`: a repository in one commit, through the real client; a URL with its manifest last.

The client reads the hub's address when it is imported, so exports to the hub here have a process of
their own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ExportError
from llmops_kernel.models.catalogue import prepare
from tests.export.conftest import PROMPT, Store, greedy, manifest

TOKEN = "hf_secretsecretsecretsecretsecret"


class Hub:
    """The part of the hub's HTTP API that creating a repository and a commit needs.

    It proves what the client sends and how its errors are shown. It does not prove that the real
    hub accepts it: no limits, no validation of cards, no Xet storage.
    """

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.commits: list[str] = []
        self.tokens: set[str | None] = set()
        self.objects: dict[str, bytes] = {}
        self.refuse_commits = False


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        del format, args

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, content: Any, **headers: str) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].split("/")
        if parts[1:3] == ["api", "whoami-v2"]:
            self._answer(200, {"name": "someone", "type": "user"})
            return
        repo = "/".join(parts[3:5])
        if repo not in self.hub.repos:
            self._answer(404, {"error": "no"}, X_Error_Code="RepoNotFound")
            return
        if "tree" in parts:
            found = self.hub.repos[repo].items()
            tree = [{"type": "file", "path": name, "size": len(data)} for name, data in found]
            self._answer(200, [one | {"oid": "0" * 40} for one in tree])
            return
        files = [{"rfilename": name} for name in self.hub.repos[repo]]
        info = {"id": repo, "siblings": files, "sha": "0" * 40, "private": True, "tags": []}
        self._answer(200, info | {"downloads": 0, "likes": 0})

    def do_PUT(self) -> None:
        self.hub.objects[self.path.rpartition("/")[2]] = self._body()
        self._answer(200, {})

    def do_POST(self) -> None:
        body, path = self._body(), self.path.partition("?")[0]
        if "/commit/" in path or path.endswith("/create"):
            self.hub.tokens.add(self.headers.get("Authorization"))
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked.get('organization') or 'someone'}/{asked['name']}"
            self.hub.repos.setdefault(repo, {})
            self.hub.private[repo] = asked.get("visibility") == "private"
            self._answer(200, {"url": f"http://{self.headers['Host']}/{repo}"})
        elif "/preupload/" in path:
            asked = json.loads(body)["files"]
            modes = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for one in asked
            ]
            self._answer(200, {"files": modes})
        elif path.endswith("/info/lfs/objects/batch"):
            self._answer(200, self._batch(json.loads(body)))
        elif "/commit/" in path:
            self._commit(path, body)
        else:
            self._answer(200, {"valid": True, "warnings": [], "errors": []})

    def _batch(self, asked: dict[str, Any]) -> dict[str, Any]:
        host = f"http://{self.headers['Host']}"
        objects = [
            {**one, "actions": {"upload": {"href": f"{host}/lfs/{one['oid']}", "header": {}}}}
            for one in asked["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    def _commit(self, path: str, body: bytes) -> None:
        import base64

        if self.hub.refuse_commits:
            self._answer(403, {"error": f"token {TOKEN} may not write"})
            return
        repo = "/".join(path.split("/")[3:5])
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                self.hub.commits.append(value["summary"])
            elif entry["key"] == "file":
                self.hub.repos[repo][value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.hub.repos[repo][value["path"]] = self.hub.objects[value["oid"]]
        url = f"http://{self.headers['Host']}/{repo}"
        self._answer(200, {"commitUrl": f"{url}/commit/{'1' * 40}", "commitOid": "1" * 40})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    made = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": made}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    yield made
    server.shutdown()
    server.server_close()


def test_merged_weights_are_one_private_commit(
    store: Store, adapter: Path, tmp_path: Path, hub: Hub
) -> None:
    run = store.add("adding-1", adapter)
    done = store.export_apart(run, None, to="hub", repo="someone/adder", check=1)
    assert done.path is None
    assert done.location.endswith("/someone/adder")
    files = hub.repos["someone/adder"]
    assert set(files) == set(done.files)
    assert hub.private["someone/adder"]
    assert len(hub.commits) == 1
    assert "adding-1" in hub.commits[0]
    assert hub.tokens == {f"Bearer {TOKEN}"}
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert greedy(folder, [PROMPT]) == greedy(prepare("tiny-llama"), [PROMPT], adapter=adapter)


def test_an_adapter_is_pushed_alone(store: Store, adapter: Path, hub: Hub) -> None:
    run = store.add("adding-1", adapter)
    done = store.export_apart(run, None, to="hub", repo="someone/adder", lora=True)
    files = hub.repos["someone/adder"]
    assert "adapter_model.safetensors" in files
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == "tiny-llama"
    assert b"library_name: peft" in files["README.md"]
    assert "AutoPeftModelForCausalLM" in done.command


def test_a_repository_with_files_is_not_changed_without_force(
    store: Store, adapter: Path, hub: Hub
) -> None:
    hub.repos["someone/adder"] = {"model.safetensors": b"theirs"}
    run = store.add("adding-1", adapter)
    with pytest.raises(ExportError, match=r"has files already: model\.safetensors") as caught:
        store.export_apart(run, None, to="hub", repo="someone/adder")
    assert "--force" in caught.value.remedy
    assert hub.repos["someone/adder"] == {"model.safetensors": b"theirs"}


def test_a_refused_commit_is_reported_without_the_token(
    store: Store, adapter: Path, hub: Hub
) -> None:
    hub.refuse_commits = True
    with pytest.raises(ExportError, match="cannot be written") as caught:
        store.export_apart(
            store.add("adding-1", adapter), None, to="hub", repo="someone/adder", check=0
        )
    assert TOKEN not in str(caught.value)
    assert hub.repos["someone/adder"] == {}


def test_no_token_is_said_before_any_work(
    store: Store, adapter: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ExportError, match="no token for the hub") as caught:
        store.export_apart(store.add("adding-1", adapter), None, to="hub", repo="someone/adder")
    assert "HF_TOKEN" in caught.value.remedy
    assert not hub.repos


def test_a_url_has_its_manifest_when_all_is_there(
    store: Store, adapter: Path, full_model: Path, tmp_path: Path
) -> None:
    url = f"file://{tmp_path / 'bucket' / 'model'}"
    done = store.export(store.add("first", adapter), url, to="hub", check=0)
    target = tmp_path / "bucket" / "model"
    assert done.location == url
    assert set(manifest(target)["files"]) == set(done.files)
    assert greedy(target, [PROMPT]) == greedy(prepare("tiny-llama"), [PROMPT], adapter=adapter)
    second = store.add("second", full_model, what="model")
    with pytest.raises(ExportError, match="exists") as caught:
        store.export(second, url, to="hub", check=0)
    assert "--force" in caught.value.remedy
    (target / "old.bin").write_bytes(b"of the first export")
    store.export(second, url, to="hub", force=True, check=0)
    assert manifest(target)["run"] == "second"
    assert not (target / "old.bin").exists()


def test_a_url_with_files_of_others_is_left_alone(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").write_text("mine")
    url = f"file://{tmp_path / 'theirs'}"
    with pytest.raises(ExportError, match=r"did not write: thesis\.txt"):
        store.export(store.add("a", adapter), url, to="hub", force=True, check=0)
    assert [one.name for one in (tmp_path / "theirs").iterdir()] == ["thesis.txt"]
