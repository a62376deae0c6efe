"""A user whose kubeconfig leads to the stand-in, in a folder of templates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.standin.process import StandIn

TEMPLATES = Path(__file__).parents[3] / "cluster_templates"
Template = dict[str, Any]


def user_in(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch, *, namespace: str, folder: Path
) -> Path:
    """Make `folder` the current one of a user of that namespace; return its templates."""
    kubeconfig = standin.kubeconfig(folder / "kubeconfig", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    templates = folder / "cluster_templates"
    templates.mkdir()
    monkeypatch.chdir(folder)
    return templates


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
    templates = user_in(standin, monkeypatch, namespace=namespace, folder=folder)
    template: Template = yaml.safe_load((TEMPLATES / "kind-cpu.yaml").read_text())
    change(template)
    path = templates / f"{name}.yaml"
    path.write_text(yaml.safe_dump(template | {"name": name}))
    return path
