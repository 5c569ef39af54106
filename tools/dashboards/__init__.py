"""Grafana dashboards of the service's metrics."""
