"""Ray clusters on Kubernetes: RayCluster resources of KubeRay's operator, and what they need."""
