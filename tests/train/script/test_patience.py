from __future__ import annotations

import pytest

from llmops_kernel.train.script.ends import STOP_WAIT_ENV_VAR, Patience


@pytest.mark.parametrize(
    ("text", "leave_s", "terminate_s"),
    [("120", 110, 5), ("25", 15, 5), ("5", 3, 1), (None, 1.8, 0.6), ("soon", 1.8, 0.6)],
)
def test_the_driver_keeps_a_part_of_what_ray_gives(
    text: str | None, leave_s: float, terminate_s: float
) -> None:
    env = {} if text is None else {STOP_WAIT_ENV_VAR: text}
    patience = Patience.from_env(env)
    assert (patience.leave_s, patience.terminate_s) == pytest.approx((leave_s, terminate_s))
