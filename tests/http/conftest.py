"""Fixtures that stand for servers of merchants."""

from tests.webhooks.conftest import endpoint, trap

__all__ = ["endpoint", "trap"]
