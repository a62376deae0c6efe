"""Where a run of any kind is reported to, besides its journal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from llmops_kernel.config.models.section import Broken, Section
from llmops_kernel.config.names import TRACKERS
from llmops_kernel.config.problems import did_you_mean, listed

_CREDENTIALS = re.compile(r"://[^/\s@]+@")


def _one_tracker(value: Any) -> Any:
    """`wandb` and `none` are common ways to write `[wandb]` and `[]`."""
    if value is None or value == "none":
        return ()
    return (value,) if isinstance(value, str) else value


ReportTo = Annotated[tuple[str, ...], BeforeValidator(_one_tracker)]


def _without_credentials(value: str | None) -> str | None:
    if value and _CREDENTIALS.search(value):
        raise ValueError(
            "this URL has a user name or a password, and this file is kept in the run's record;"
            " set MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the"
            " cluster template's secrets"
        )
    return value


class TrackingConfig(Section):
    """How the run appears in the trackers of `report_to`. Credentials, such as WANDB_API_KEY,
    COMET_API_KEY or MLFLOW_TRACKING_TOKEN, come from the secrets of the cluster template."""

    project: str | None = None
    """Project of W&B, Comet and Trackio, experiment of MLflow. Default: WANDB_PROJECT,
    COMET_PROJECT_NAME, TRACKIO_PROJECT or MLFLOW_EXPERIMENT_NAME on the cluster, else `name`."""
    entity: str | None = None
    """Team of W&B, workspace of Comet. Default: WANDB_ENTITY or COMET_WORKSPACE, else your own."""
    mlflow_uri: Annotated[str | None, AfterValidator(_without_credentials)] = None
    """Address of the MLflow server, or `sqlite:////data/mlflow.db`. Default: MLFLOW_TRACKING_URI on
    the cluster, else a database beside the folder of runs."""
    tensorboard_dir: str | None = None
    """Folder that holds a folder of TensorBoard's files for each run. Default:
    TENSORBOARD_LOGGING_DIR on the cluster, else a folder beside that of runs."""
    upload: bool = True
    """Upload the output too if it is small (256 MB, LLMOPS_COPY_OUTPUTS of the template); a larger
    one is named with its path and the digests of its files."""


def tracker_rules(report_to: tuple[str, ...]) -> Iterator[Broken]:
    """Yield each name of `report_to` that is no tracker."""
    for name in report_to:
        if name not in TRACKERS:
            yield Broken(
                "report_to",
                f"there is no tracker {name!r}",
                did_you_mean(name, TRACKERS) or f"known: {listed(TRACKERS, limit=20)}",
            )
