"""The configs of the cases that need a GPU, which can be checked without one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu import test_objectives, test_plan
from tests.gpu.test_strategies import CASES
from tests.gpu.trained import NVME, sections

CONFIGS = {
    **{str(one.id): one.values[0].config for one in CASES},
    **{name: config for name, (config, _) in test_objectives.CASES.items()},
    **{f"plan, {name}": config for name, config in test_plan.CASES.items()},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_config_of_a_case_is_valid(name: str) -> None:
    config: dict[str, Any] = CONFIGS[name]
    places = {key: "/nvme" if one == NVME else one for key, one in config["parallelism"].items()}
    sections({**config, "parallelism": places}, workers=2)
