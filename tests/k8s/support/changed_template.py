"""A user whose kubeconfig leads to the stand-in, in a folder with one template of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.standin.process import StandIn

TEMPLATES = Path(__file__).parents[3] / "cluster_templates"
Template = dict[str, Any]


def user_with_template(
    standin: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    *,
    namespace: str,
    folder: Path,
    name: str,
    change: Callable[[Template], object],
) -> Path:
    """Make `folder` the current one; return its template: the shipped `kind-cpu`, changed."""
    kubeconfig = standin.kubeconfig(folder / "kubeconfig", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    template: Template = yaml.safe_load((TEMPLATES / "kind-cpu.yaml").read_text())
    change(template)
    path = folder / "cluster_templates" / f"{name}.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(template | {"name": name}))
    monkeypatch.chdir(folder)
    return path


__all__ = ["Template", "user_with_template"]
