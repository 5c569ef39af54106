"""Payments on chains: the watch loop, proof of logs, settlement of transfers and refunds."""
