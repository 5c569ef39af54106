"""Grafana dashboards for the service's metrics."""
