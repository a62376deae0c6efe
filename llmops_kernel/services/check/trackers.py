"""Whether the packages of trackers are installed on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from llmops_kernel.store.preview_job import Finding

_PACKAGES = {
    "azure_ml": (("azureml.core",), "azureml-core"),
    "clearml": (("clearml",), "clearml"),
    "codecarbon": (("codecarbon",), "codecarbon"),
    "comet_ml": (("comet_ml",), "comet_ml"),
    "dagshub": (("dagshub",), "dagshub mlflow"),
    "dvclive": (("dvclive",), "dvclive"),
    "flyte": (("flytekit",), "flytekit"),
    "mlflow": (("mlflow",), "mlflow"),
    "neptune": (("neptune",), "neptune"),
    "swanlab": (("swanlab",), "swanlab"),
    "tensorboard": (("tensorboard", "tensorboardX"), "tensorboard"),
    "trackio": (("trackio",), "trackio"),
    "wandb": (("wandb",), "wandb"),
}
"""Modules of which Transformers needs one, and what to install."""


def tracker_findings(names: Sequence[str]) -> Iterator[Finding]:
    """Yield a sentence for each tracker of `report_to`."""
    for name in names:
        modules, install = _PACKAGES.get(name, ((), ""))
        if not modules:
            continue
        if any(_is_importable(module) for module in modules):
            yield Finding(
                path="report_to",
                level="note",
                message=f"the package of {name} is installed on this machine; the cluster's nodes"
                " need it too",
            )
            continue
        yield Finding(
            path="report_to",
            level="warning",
            message=f"the package of {name} is not installed on this machine, and a run fails on"
            " nodes without it",
            remedy=f"pip install {install}; if it is in the cluster's image, nothing is to be done",
        )


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
