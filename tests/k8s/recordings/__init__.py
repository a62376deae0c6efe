"""Recordings of a real Kubernetes API server and of KubeRay's operator (README.md)."""

from pathlib import Path

RECORDINGS = Path(__file__).parent
RAYCLUSTER_CRD = RECORDINGS / "ray.io_rayclusters.v1.slim.json.gz"
