"""The client of a head's dashboard says why it got no answer."""

from __future__ import annotations

from llmops_kernel.providers.dashboard.rest import Dashboard
from llmops_kernel.providers.protocol import Connection
from tests.providers.kuberay.ray_dashboard import RayDashboard


def test_the_reason_of_a_missing_answer_is_kept_until_the_next_answer() -> None:
    with RayDashboard() as ray:
        connection = Connection(dashboard_url=f"http://{ray.address}")
        with Dashboard(connection) as dashboard:
            ray.is_silent = True
            assert dashboard.session_name() is None
            assert dashboard.trouble == "HTTP 503"
            ray.is_silent = False
            assert dashboard.session_name() == "session_1"
            assert dashboard.trouble == ""


def test_a_dashboard_that_refuses_connections_is_named_as_such() -> None:
    with Dashboard(Connection(dashboard_url="http://127.0.0.1:9")) as dashboard:
        assert dashboard.session_name() is None
        assert "refused" in dashboard.trouble.lower()
