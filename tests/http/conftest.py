"""Fixtures that act as merchants' servers."""

from tests.webhooks.conftest import endpoint, trap

__all__ = ["endpoint", "trap"]
