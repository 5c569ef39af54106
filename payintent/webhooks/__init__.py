"""Webhooks on their way out: signed, sent within limits, spaced, and kept apart by endpoint."""
