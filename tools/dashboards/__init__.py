"""Dashboards of the service's metrics, for Grafana."""
