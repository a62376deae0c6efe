"""The files of the Ray Dashboard that come with the installed Ray."""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from llmops_kernel.errors import LLMOpsError

SHIM: Final = "llmops/opaque.js"
"""Our script, which the page loads before Ray's own."""
_OURS: Final = Path(__file__).parent / "static"
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,40}")
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
_PACKED: Final = {".css", ".html", ".js", ".json", ".svg", ".txt"}


class NoPagesError(LLMOpsError):
    """The pages of the cluster's Ray are not on this machine."""

    status = 409


@dataclass(frozen=True)
class PageFile:
    content: bytes
    content_type: str
    is_gzipped: bool


@dataclass(frozen=True)
class RayPages:
    """The dashboard of one version of Ray, as it was installed. Nothing of a cluster is in it."""

    version: str
    folder: Path

    def owns(self, path: str) -> bool:
        """Return whether `path` is a file's. A cluster is never asked for one of these."""
        parts = PurePosixPath(path).parts
        return not parts or parts[0] in self._top or path == "index.html"

    @property
    def _top(self) -> set[str]:
        names = {path.name for path in self.folder.iterdir()}
        return {"static", SHIM.partition("/")[0], *names}

    def read(self, path: str) -> PageFile | None:
        """Return a file, or None if there is none of that name. An empty path is the page."""
        name = path or "index.html"
        root = _OURS if name == SHIM else self.folder.resolve()
        try:
            file = (root / ("opaque.js" if name == SHIM else name)).resolve()
            stat = file.stat()
        except (OSError, ValueError):  # Also of names that no file can have.
            return None
        if not file.is_file() or not file.is_relative_to(root):
            return None
        return _read(file, (stat.st_mtime_ns, stat.st_size), name == "index.html")


def ray_pages(cluster: str, version: str) -> RayPages:
    """Return the installed pages of that version of Ray. Raises NoPagesError with the reason."""
    if not _VERSION.fullmatch(version):
        version = ""
    ray_name = f"Ray {version}" if version else "Ray of an unknown version"
    reason = f"Cluster {cluster!r} runs {ray_name}"
    remedy = f"pip install 'ray[default]=={version}' in that environment" if version else ""
    try:
        installed = importlib.metadata.version("ray")
        spec = importlib.util.find_spec("ray")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        installed, spec = "", None
    if not installed or spec is None or not spec.submodule_search_locations:
        raise NoPagesError(
            f"{reason}, and the environment of the Jupyter server has no Ray, whose dashboard pages"
            f" would be shown here",
            remedy=remedy,
        )
    if installed != version:
        raise NoPagesError(
            f"{reason}, and the environment of the Jupyter server has Ray {installed}. Only pages"
            f" of the same version, installed beside Jupyter, are shown here",
            remedy=remedy,
        )
    folder = Path(spec.submodule_search_locations[0]) / "dashboard/client/build"
    if not (folder / "index.html").is_file():
        raise NoPagesError(
            f"The Ray {installed} of the Jupyter server's environment has no dashboard pages",
            remedy=f"pip install --force-reinstall 'ray[default]=={installed}'",
        )
    return RayPages(installed, folder)


@lru_cache(maxsize=128)
def _read(path: Path, _stat: tuple[int, int], is_page: bool) -> PageFile:
    content = path.read_bytes()
    if is_page:
        # Before all other scripts: Ray's use storage, which a page of no origin does not have.
        script = f'<head><script src="./{SHIM}"></script>'.encode()
        content = content.replace(b"<head>", script, 1)
    is_packed = path.suffix in _PACKED
    return PageFile(
        content=gzip.compress(content) if is_packed else content,
        content_type=_TYPES.get(path.suffix, "text/plain; charset=utf-8"),
        is_gzipped=is_packed,
    )
