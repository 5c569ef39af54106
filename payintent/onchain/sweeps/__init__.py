"""Sweep deposit addresses, and read sweeps from the chain."""
