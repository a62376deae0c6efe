"""The template of a cluster on Kubernetes: what its RayCluster is made of."""

from __future__ import annotations

from llmops_kernel.config.models.kuberay_fields import KubeRayFields
from llmops_kernel.config.models.kuberay_rules import broken_rules
from llmops_kernel.config.models.section import Broken


class KubeRayTemplate(KubeRayFields):
    """Everything `llmops.up` needs for a cluster on Kubernetes; the same file, the same cluster."""

    def broken_rules(self) -> list[Broken]:
        return broken_rules(self)
