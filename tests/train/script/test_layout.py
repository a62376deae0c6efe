"""Ranks, environment and resources of a script's workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.config.models.script import ScriptConfig, WorkerResources
from llmops_kernel.driver.queue_place import ClusterCapacity
from llmops_kernel.train.script.workers import WorkerNode, layout, needs


def test_workers_of_one_machine_meet_on_its_loopback_address() -> None:
    nodes = [WorkerNode("a", "10.0.0.1", gpus=("0",)), WorkerNode("a", "10.0.0.1", gpus=("1",))]
    first, second = layout(nodes)
    env = second.env(29500, run_id="run-1")
    assert env["RANK"] == env["LOCAL_RANK"] == "1"
    assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == "2"
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", "29500")
    # As under torchrun, rank 0 does not start the store, on all addresses, but finds it started.
    assert first.env(1, run_id="r")["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    apart = layout([WorkerNode("a", "h"), WorkerNode("b", "i")])[0]
    assert "TORCHELASTIC_USE_AGENT_STORE" not in apart.env(1, run_id="r")
    # LOCAL_RANK selects the GPU, as under torchrun, so each worker sees those of all.
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "CUDA_VISIBLE_DEVICES" not in layout([WorkerNode("a", "h")])[0].env(1, run_id="r")
    assert first.env(1, run_id="run-1")["TORCHELASTIC_RUN_ID"] == "run-1"


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_ranks_are_whole_and_nodes_stay_together(placed: list[str]) -> None:
    ranks = layout([WorkerNode(node, f"host-{node}") for node in placed])
    assert [one.rank for one in ranks] == list(range(len(placed)))
    assert sorted(one.index for one in ranks) == list(range(len(placed)))
    nodes = [placed[one.index] for one in ranks]
    assert [a for a, b in zip(nodes, [None, *nodes], strict=False) if a != b] == list(
        dict.fromkeys(placed)
    )
    for one in ranks:
        assert one.local_world_size == placed.count(placed[one.index])
        assert 0 <= one.local_rank < one.local_world_size
    single = len(set(placed)) == 1
    assert ranks[0].master_addr == ("127.0.0.1" if single else f"host-{placed[0]}")
    assert len({one.master_addr for one in ranks}) == 1


def test_workers_that_can_never_fit_are_refused_and_busy_ones_wait() -> None:
    config = ScriptConfig(script="t.py", num_workers=4, resources=WorkerResources(cpus=2))
    never = needs(config, capacity=ClusterCapacity({"CPU": 4.0}), free={"CPU": 4.0})
    assert "8 CPU" in never.problem
    assert "num_workers" in never.remedy
    waits = needs(config, capacity=ClusterCapacity({"CPU": 8.0}), free={"CPU": 1.0})
    assert not waits.problem
    assert "1 of 8 CPU free" in waits.warning
    gpus = needs(
        config, capacity=ClusterCapacity({"CPU": 8.0, "GPU": 4.0}), free={"CPU": 8.0, "GPU": 4.0}
    )
    assert (gpus.gpus, gpus.problem, gpus.warning) == (1.0, "", "")


def test_with_an_autoscaler_the_bound_is_what_the_cluster_can_have() -> None:
    config = ScriptConfig(script="t.py", num_workers=4, resources=WorkerResources(cpus=2))
    waits = needs(config, capacity=ClusterCapacity({"CPU": 8.0, "GPU": 4.0}, grows=True), free={})
    assert (waits.problem, waits.gpus) == ("", 1.0)
    assert waits.warning
    never = needs(config, capacity=ClusterCapacity({"CPU": 4.0}, grows=True), free={})
    assert "they request 8 CPU, the cluster can have at most 4" in never.problem
    assert "max_replicas" in never.remedy
