"""What a waiting run is shown to wait for, and that nothing is guessed."""

from __future__ import annotations

from typing import Any

from llmops_kernel.driver.queue_place import ClusterUse, QueuePosition, Request, find_place
from tests.messages import missing

OWN, FIRST, SECOND, NOTEBOOK = "01", "02", "03", "04"
RUNS = {OWN: "own-1", FIRST: "first-2", SECOND: "second-3"}


def request(job: str, state: Any, *, at: int = 0, too_large: bool = False, **amounts: float):
    return Request(job=job, state=state, asked_ns=at, is_too_large=too_large, amounts=amounts)


def place(*requests: Request, **free: float) -> QueuePosition | None:
    total = {"CPU": 4.0, "GPU": 1.0}
    use = ClusterUse(own_job=OWN, total=total, free={**total, **free}, requests=requests, runs=RUNS)
    return find_place(use)


def test_it_names_the_runs_that_use_what_is_short() -> None:
    found = place(
        request(FIRST, "holds", CPU=2.0, GPU=1.0),
        request(SECOND, "holds", CPU=1.0),
        request(OWN, "waits", CPU=2.0, GPU=1.0),
        CPU=1.0,
        GPU=0.0,
    )
    assert found
    assert missing(found.reason, "2 CPUs", "3 of 4 CPUs", "1 of 1 GPU") == []
    by_cpu, by_gpu = found.reason.split("3 of 4 CPUs")[1].split("1 of 1 GPU")
    assert missing(by_cpu, "first-2", "second-3") == []
    assert "first-2" in by_gpu
    assert "second-3" not in by_gpu


def test_work_that_is_no_run_is_named_as_such() -> None:
    waits = request(OWN, "waits", CPU=2.0)
    alone = place(waits, CPU=0.0)
    beside = place(request(FIRST, "holds", CPU=3.0), waits, CPU=0.0)
    notebook = place(request(NOTEBOOK, "holds", CPU=4.0), waits, CPU=0.0)
    assert alone
    assert missing(alone.reason, "2 CPUs", "4 of 4 CPUs", "other work") == []
    assert "run " not in alone.reason
    assert notebook
    assert notebook.reason == alone.reason
    assert beside
    assert missing(beside.reason, "4 of 4 CPUs", "run first-2", "other work") == []


def test_many_runs_are_counted() -> None:
    use = ClusterUse(
        own_job=OWN,
        total={"CPU": 6.0},
        free={"CPU": 0.0},
        requests=(
            *(request(str(n), "holds", CPU=1.0) for n in range(10, 16)),
            request(OWN, "waits", CPU=1.0),
        ),
        runs={str(n): f"run-{n}" for n in range(10, 16)},
    )
    found = find_place(use)
    assert found
    assert missing(found.reason, "run-10", "run-11", "run-12", "3 more runs") == []
    assert "run-13" not in found.reason


def test_without_an_order_no_place_is_said() -> None:
    """Ray places whichever request fits: `place 1 of 4` was overtaken for fifteen minutes."""
    waiting = [request(FIRST, "waits", at=1, CPU=1.0), request(OWN, "waits", at=3, CPU=4.0)]
    found = place(request(NOTEBOOK, "holds", CPU=4.0), *waiting, CPU=0.0)
    assert found
    assert (found.place, found.length) == (None, None)


def test_free_resources_that_are_spread_are_not_called_used() -> None:
    found = place(request(OWN, "waits", CPU=2.0))
    assert found
    assert missing(found.reason, "2 CPUs", "free") == []
    assert "used" not in found.reason
    larger = place(request(OWN, "waits", too_large=True, CPU=2.0))
    assert larger
    assert missing(larger.reason, "2 CPUs", "large enough") == []
    assert "used" not in larger.reason


def test_an_autoscaler_that_may_add_what_is_short_is_named() -> None:
    def reason(most: dict[str, float], *requests: Request) -> str:
        use = ClusterUse(
            own_job=OWN,
            total={"CPU": 2.0},
            free={"CPU": 1.0},
            requests=(request(OWN, "waits", CPU=2.0, GPU=1.0, too_large=True), *requests),
            most=most,
        )
        found = find_place(use)
        assert found
        return found.reason

    values = ("2 CPUs", "1 GPU", "autoscaler", "1 CPU", "0 GPUs")
    assert missing(reason({"CPU": 4.0, "GPU": 1.0}), *values) == []
    # All that it may add is there.
    assert "autoscaler" not in reason({"CPU": 2.0, "GPU": 1.0})
    assert "autoscaler" not in reason({"CPU": 4.0})


def test_what_ray_does_not_say_is_not_guessed() -> None:
    assert place() is None
    assert place(request(OWN, "holds", CPU=4.0), CPU=0.0) is None
    assert place(request(FIRST, "waits", CPU=4.0), CPU=0.0) is None
    # A group that Ray has not tried to place yet.
    assert place(request(OWN, "starts", CPU=1.0)) is None
    # Its process starts: what is in use may be its own share.
    assert place(request(OWN, "starts", CPU=4.0), CPU=0.0) is None


def test_an_actor_waits_where_others_use_what_it_needs() -> None:
    found = place(request(FIRST, "holds", GPU=1.0), request(OWN, "starts", GPU=1.0), GPU=0.0)
    assert found
    assert missing(found.reason, "1 of 1 GPU", "run first-2") == []
