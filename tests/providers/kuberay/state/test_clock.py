"""Ages and countdowns are counted on the API server's clock."""

from __future__ import annotations

import time

from llmops_kernel.providers.kuberay.api.client import open_kube
from llmops_kernel.providers.kuberay.fit.observation import observe
from tests.providers.kuberay.conftest import Cloud


def test_a_clock_that_is_wrong_here_makes_no_new_cluster_old(cloud: Cloud) -> None:
    with cloud.standin.faulty("clock", seconds=-3600):
        cloud.provider.up(cloud.template(idle={"suspend_after_s": 7200.0}), wait=False)
        cloud.provider.keep("one", for_s=60)
        found = observe(open_kube(), cloud.namespace, "one", raycluster=cloud.live())
        assert abs(found.now_s - time.time() + 3600) < 10
        # By the clock of this machine that protection ended an hour ago.
        until_s = cloud.provider.get("one").kept_until_s
        assert until_s is not None
        assert until_s < time.time()
