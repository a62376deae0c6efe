"""Compare the version in the Lab extension's two npm files with the package's; `--write` copies it.

npm and JupyterLab read a version from `package.json` alone. The one to change is in
`llmops_kernel/version.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from llmops_kernel.version import VERSION
from tests.checks.tracked import ROOT

EXTENSION = ROOT / "extension"


def differences(extension: Path = EXTENSION, *, version: str = VERSION) -> list[str]:
    """Return one line for each npm file that states another version."""
    return [
        f"{path.name} has version {holder.get('version')}, llmops_kernel/version.py {version};"
        " make version copies it"
        for path in _files(extension)
        for holder in _holders(json.loads(path.read_text()))
        if holder.get("version") != version
    ]


def write(extension: Path = EXTENSION, *, version: str = VERSION) -> None:
    for path in _files(extension):
        content = json.loads(path.read_text())
        for holder in _holders(content):
            holder["version"] = version
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _files(extension: Path) -> list[Path]:
    return [extension / "package.json", extension / "package-lock.json"]


def _holders(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that carry the version: the file and, in a lock, its own package."""
    own = content.get("packages", {}).get("")
    return [content] if own is None else [content, own]


def main() -> int:
    if "--write" in sys.argv:
        write()
    problems = differences()
    print("\n".join(problems) or f"versions: {VERSION} everywhere")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
