"""The configs of the cases that need a GPU, which can be checked without one."""

from __future__ import annotations

import pytest

from llmops_kernel.config.models.train import TrainingConfig
from tests.gpu.test_strategies import CASES, Case
from tests.gpu.trained import NVME


@pytest.mark.parametrize("case", [one.values[0] for one in CASES], ids=[one.id for one in CASES])
def test_the_config_of_a_case_is_valid(case: Case) -> None:
    config = case.config
    places = {key: "/nvme" if one == NVME else one for key, one in config["parallelism"].items()}
    sections = {
        **config,
        "model": {"id": "tiny-llama", "dtype": "bfloat16", **config.get("model", {})},
        "data": {"train": "train.jsonl", **config.get("data", {})},
        "parallelism": {**places, "num_workers": 2},
        "training": {"micro_batch_size": 2, "global_batch_size": 4, "max_steps": 20},
    }
    TrainingConfig.model_validate(sections)
