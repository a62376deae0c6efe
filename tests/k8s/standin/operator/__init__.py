"""KubeRay's operator 1.7, as recorded."""
