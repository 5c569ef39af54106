"""Outgoing webhooks: signed, rate-limited, retried, and isolated by endpoint."""
