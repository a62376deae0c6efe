"""Ray clusters on Kubernetes: RayCluster resources of the KubeRay operator, and related objects."""
