"""The client of a head's dashboard says why it got no answer."""

from __future__ import annotations

from llmops_kernel.providers.dashboard import Dashboard
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


def test_what_runs_is_named_with_its_user() -> None:
    with RayDashboard() as ray, Dashboard(Connection(dashboard_url=f"http://{ray.address}")) as one:
        assert one.usage().running == ()
        ray.run("lora-1-1")
        ray.jobs[0]["metadata"] = {"llmops_run": "lora-1", "llmops_user": "ann"}
        ray.run("old-1", status="SUCCEEDED")
        usage = one.usage()
        assert usage.running == ("run lora-1 of ann (running)",)
        assert usage.jobs_running == 1
        for number in range(30):
            ray.run(f"x-{number}")
        shown = one.usage().running
        assert shown is not None
        assert (len(shown), shown[-1]) == (21, "and 11 more")
        ray.is_silent = True
        assert one.usage().running is None
