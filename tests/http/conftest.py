"""Possible servers of merchants, for tests of outgoing requests."""

from tests.webhooks.conftest import endpoint, trap

__all__ = ["endpoint", "trap"]
