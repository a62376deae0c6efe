"""What a cluster can have for a run: what it has now, or what Ray's autoscaler can add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmops_kernel.store.record.spec import RunSpec


@dataclass(frozen=True)
class Room:
    """Resources by Ray's names: `{"CPU": 2.0, "GPU": 1.0}`."""

    total: Mapping[str, float]
    grows: bool = False
    """Ray's autoscaler adds nodes when work needs them: `total` is more than there is now."""

    def has(self, name: str) -> str:
        """`the cluster has 4`, or what it can have."""
        verb = "can have at most" if self.grows else "has"
        return f"the cluster {verb} {self.total.get(name, 0):g}"

    @property
    def remedy(self) -> str:
        """How there is more of it."""
        if self.grows:
            return "raise max_replicas in the cluster template (`llmops cluster apply`)"
        return "use a larger cluster"


def room_of(spec: RunSpec) -> Room:
    """Ask Ray, which this process is connected to."""
    import ray

    now = ray.cluster_resources()
    if spec.most_resources is None:
        return Room(now)
    # A bound that was raised since the submission is seen in what there is.
    most = {name: max(now.get(name, 0.0), one) for name, one in spec.most_resources.items()}
    return Room(now | most, grows=True)
