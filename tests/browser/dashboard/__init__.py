"""Ray Dashboards in the browser."""
