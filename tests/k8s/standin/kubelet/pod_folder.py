"""A pod as files and variables: its folder, its mounts, what its containers see."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import socket
import sys
from pathlib import Path

from tests.k8s.standin.operator.names import AUTOSCALER
from tests.k8s.standin.runtime.client import Api, ApiError, Obj

_AS_THEY_ARE = ("/dev/shm", "/tmp/ray")
"""Ray's object store wants the real one; each pod has its own --temp-dir instead of the other."""
MARK = "STANDIN_POD"
"""Variable with the pod's uid in all processes of the pod."""
_STANDARD = {
    "port": 6379, "dashboard-port": 8265, "dashboard-agent-listen-port": 52365,
    "metrics-export-port": 8080, "ray-client-server-port": 10001,
}  # fmt: skip
_KEPT = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "HF_HUB_OFFLINE", "LLMOPS_CACHE")
ROOT = Path(__file__).parents[4]
_REF = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class MountError(Exception):
    """A volume or variable that is not there yet; the reason goes into the container's state."""

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason


class PodFolder:
    """Where one pod lives: `bin` with the stand-in of `ray`, `mnt` for mounts, `log`."""

    def __init__(self, root: Path, pod: Obj, *, ip: str, ports: dict[str, int] | None = None):
        self.pod, self.ip, self.uid = pod, ip, pod["metadata"]["uid"]
        self._root = root
        # Short, because Ray's sockets are below it and their names have at most 107 bytes.
        self.path = root / pod["metadata"]["uid"][:6]
        self.ports = ports or {flag: free_port() for flag in _STANDARD}
        self.mounts: dict[str, Path] = {}
        for name in ("bin", "home", "tmp"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        self.log = self.path / "log"
        shim = self.path / "bin" / "ray"
        shim.write_text(f'#!/bin/bash\nexec {sys.executable} -I -S {_shim()} "$@"\n')
        shim.chmod(0o755)

    @property
    def annotations(self) -> dict[str, str]:
        """For the API server's proxy and port-forward, and for people who look for the log."""
        where = {
            str(_STANDARD[flag]): f"{self._bound(flag)}:{port}" for flag, port in self.ports.items()
        }
        logs = {one["name"]: str(self.log_of(one)) for one in self.pod["spec"]["containers"]}
        return {
            "standin/ports": json.dumps(where), "standin/log": str(self.log),
            "standin/logs": json.dumps(logs),
        }  # fmt: skip

    def log_of(self, container: Obj) -> Path:
        """Of the autoscaler a file of its own; of all others one."""
        name = container["name"]
        return self.path / f"log-{name}" if name == AUTOSCALER else self.log

    def _bound(self, flag: str) -> str:
        return "127.0.0.1" if flag == "metrics-export-port" else self.ip

    def address(self, port: int) -> tuple[str, int]:
        """Where the container's port really is."""
        for flag, standard in _STANDARD.items():
            if standard == port:
                return self._bound(flag), self.ports[flag]
        return self.ip, port

    def start_settings(self) -> str:
        flags = {flag: str(port) for flag, port in self.ports.items()}
        flags |= {
            "node-ip-address": self.ip, "dashboard-host": self.ip,
            "temp-dir": str(self.path / "ray"), "object-store-memory": str(120 * 2**20),
            # Free ones each: the default range is shared with all other pods.
            "min-worker-port": "0", "max-worker-port": "0",
        }  # fmt: skip
        ray = Path(sys.executable).parent / "ray"
        return json.dumps({"ray": str(ray), "flags": flags})

    async def mount(self, api: Api) -> None:
        """Make the volumes. Raises MountError while an object that they name is missing."""
        spec, namespace = self.pod["spec"], self.pod["metadata"]["namespace"]
        scopes: dict[str, Path] = {}
        for volume in spec.get("volumes") or []:
            scopes[volume["name"]] = await self._volume(api, namespace, volume)
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            for mount in container.get("volumeMounts") or []:
                path = mount["mountPath"].rstrip("/")
                if path not in _AS_THEY_ARE:
                    scope = scopes[mount["name"]]
                    self.mounts[path] = scope / mount.get("subPath", "")

    async def _volume(self, api: Api, namespace: str, volume: Obj) -> Path:
        scope = self.path / "mnt" / volume["name"]
        if "persistentVolumeClaim" in volume:
            scope = self._root / "claims" / namespace / volume["persistentVolumeClaim"]["claimName"]
        elif "hostPath" in volume:
            node = self.pod["spec"]["nodeName"]
            scope = self._root / "nodes" / node / volume["hostPath"]["path"].strip("/")
        scope.mkdir(parents=True, exist_ok=True)
        for kind, plural, key in (
            ("secret", "secrets", "secretName"),
            ("configMap", "configmaps", "name"),
        ):
            if kind in volume:
                source = volume[kind]
                found = await self._object(
                    api, namespace, plural, source[key], optional=source.get("optional", False),
                    volume=volume["name"],
                )  # fmt: skip
                self._write(scope, found, source.get("items"))
        for source in (volume.get("projected") or {}).get("sources", []):
            for kind, plural in (("secret", "secrets"), ("configMap", "configmaps")):
                if kind in source:
                    found = await self._object(
                        api, namespace, plural, source[kind]["name"],
                        optional=source[kind].get("optional", False), volume=volume["name"],
                    )  # fmt: skip
                    self._write(scope, found, source[kind].get("items"))
        return scope

    def _write(self, scope: Path, data: dict[str, bytes], items: list[Obj] | None) -> None:
        named = {item["key"]: item["path"] for item in items or []}
        for key, content in data.items():
            if items is None or key in named:
                target = scope / named.get(key, key)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)

    async def _object(
        self, api: Api, namespace: str, plural: str, name: str, *, optional: bool, volume: str = ""
    ) -> dict[str, bytes]:
        try:
            found = await api.get(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
        except ApiError as error:
            if error.code != 404:
                raise
            if optional:
                return {}
            text = f'{plural.removesuffix("s")} "{name}" not found'
            if volume:
                message = f'MountVolume.SetUp failed for volume "{volume}" : {text}'
                raise MountError("FailedMount", message) from error
            raise MountError("CreateContainerConfigError", text) from error
        data = {key: text.encode() for key, text in (found.get("data") or {}).items()}
        if plural == "secrets":
            data = {key: base64.b64decode(content) for key, content in data.items()}
        data |= {
            key: base64.b64decode(text) for key, text in (found.get("binaryData") or {}).items()
        }
        return data

    async def environment(self, api: Api, container: Obj, *, head: str) -> dict[str, str]:
        """What the container's processes see. Raises MountError for a reference to nothing."""
        env: dict[str, str] = {}
        namespace = self.pod["metadata"]["namespace"]
        for source in container.get("envFrom") or []:
            for kind, plural in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
                if kind in source:
                    optional = source[kind].get("optional", False)
                    data = await self._object(
                        api, namespace, plural, source[kind]["name"], optional=optional
                    )
                    prefix = source.get("prefix", "")
                    env |= {prefix + key: value.decode() for key, value in data.items()}
        for variable in container.get("env") or []:
            value = await self._value(api, variable)
            if value is not None:
                env[variable["name"]] = _REF.sub(lambda match: env.get(match[1], match[0]), value)
        env = {name: self.rewritten(value) for name, value in env.items()}
        return self._base(env) | env | self._fixed(env, head)

    async def _value(self, api: Api, variable: Obj) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable.get("value", ""))
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        for kind, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if kind in source:
                return await self._key(api, plural, source[kind])
        return ""

    async def _key(self, api: Api, plural: str, source: Obj) -> str | None:
        namespace, optional = self.pod["metadata"]["namespace"], source.get("optional", False)
        data = await self._object(api, namespace, plural, source["name"], optional=optional)
        if source["key"] in data:
            return data[source["key"]].decode()
        if optional:
            return None
        kind = "Secret" if plural == "secrets" else "ConfigMap"
        message = f"couldn't find key {source['key']} in {kind} {namespace}/{source['name']}"
        raise MountError("CreateContainerConfigError", message)

    def _field(self, path: str) -> str:
        if match := re.match(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return str((self.pod["metadata"].get(match[1]) or {}).get(match[2], ""))
        known = {
            "status.podIP": self.ip, "status.hostIP": "127.0.0.1",
            "spec.nodeName": self.pod["spec"].get("nodeName", ""),
            "spec.serviceAccountName": self.pod["spec"].get("serviceAccountName", "default"),
        }  # fmt: skip
        return str(known.get(path) or self.pod["metadata"].get(path.removeprefix("metadata."), ""))

    @staticmethod
    def expanded(word: str, env: dict[str, str]) -> str:
        """A word of a container's command with its `$(NAME)`, as a kubelet expands it."""
        return _REF.sub(lambda match: env.get(match[1], match[0]), word)

    def rewritten(self, text: str) -> str:
        """Paths of mounts as they are on this machine, the longest first."""
        for path in sorted(self.mounts, key=len, reverse=True):
            pattern = rf"(?<![\w.-]){re.escape(path)}(?![\w.-])"
            text = re.sub(pattern, str(self.mounts[path]), text)
        return text

    def _base(self, env: dict[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        path = [str(self.path / "bin"), str(Path(sys.executable).parent), "/usr/bin", "/bin"]
        path = [*path, "/usr/local/bin", "/usr/sbin", "/sbin"]
        return kept | {
            "PATH": os.pathsep.join(path), "HOME": str(self.path / "home"),
            "TMPDIR": str(self.path / "tmp"), "HOSTNAME": self.pod["metadata"]["name"],
        }  # fmt: skip

    def _fixed(self, env: dict[str, str], head: str) -> dict[str, str]:
        quick = str(ROOT / "llmops_kernel" / "providers" / "local" / "lazy_imports")
        fixed = {
            # A third of the time to start; nothing else of the repository comes in with it.
            "PYTHONPATH": os.pathsep.join(filter(None, [env.get("PYTHONPATH"), quick])),
            MARK: self.pod["metadata"]["uid"],
            "STANDIN_RAY": self.start_settings(),
            # Unset means token auth with a token of the home folder; never that by accident.
            "RAY_AUTH_MODE": env.get("RAY_AUTH_MODE", "disabled"),
            "DASHBOARD_METRIC_PORT": "0", "AUTOSCALER_METRIC_PORT": "0",
        }  # fmt: skip
        if head:
            fixed |= {"RAY_ADDRESS": head, "RAY_PORT": head.rpartition(":")[2]}
            fixed |= {
                name: head.rpartition(":")[0] for name in ("FQ_RAY_IP", "RAY_IP") if name in env
            }
        # A PATH of the container's own comes first, but never without the stand-in of `ray`.
        if "PATH" in env:
            fixed["PATH"] = os.pathsep.join([env["PATH"], self._base(env)["PATH"]])
        return fixed

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _shim() -> Path:
    return Path(__file__).with_name("ray_shim.py")


_GIVEN: set[int] = set()
"""Ports of this process's pods: a pod that has not bound its own yet must not share them."""


def free_port() -> int:
    """Free on all addresses now, and outside of the range that the system gives out itself."""
    for _ in range(200):
        port = random.randrange(20_000, 32_000)
        if port in _GIVEN:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        _GIVEN.add(port)
        return port
    raise RuntimeError("no free port")
