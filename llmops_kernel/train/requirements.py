"""Packages that a config needs besides the extra `train`; looked for before anything is started."""

from __future__ import annotations

from importlib.util import find_spec

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import TrainingError


def check_packages(config: TrainingConfig) -> None:
    """Raise TrainingError if this environment lacks a package that the method needs."""
    missing = [name for name in config.method.needs if find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise TrainingError(
            f"method {config.method.type} needs the package {names}, which is not installed in"
            " the environment of the cluster.",
            remedy=f"install it on all nodes: `pip install {names}` or"
            " `pip install 'llmops-kernel[gpu]'`; or set method.type=lora",
        )
