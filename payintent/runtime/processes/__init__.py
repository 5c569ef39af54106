"""Supervised processes: start, restart, handover and metrics."""
