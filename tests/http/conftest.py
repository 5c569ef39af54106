"""Servers that a merchant might have, for the tests of egress."""

from tests.webhooks.conftest import endpoint, trap

__all__ = ["endpoint", "trap"]
