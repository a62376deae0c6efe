"""Installed as the top-level module `llmops_ray`: Ray imports the module named by the scheme.

Every installation copies this file, even an editable one, so it contains only the import.
"""

from llmops_kernel.providers.kuberay.route.ray_address import get_job_submission_client_cluster_info

__all__ = ["get_job_submission_client_cluster_info"]
