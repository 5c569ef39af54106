"""A payment gateway for tests, with its own process, state and wire format."""
