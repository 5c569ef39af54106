"""The simulator and a merchant, as in the simulator's tests."""

from tests.sandbox.simulator.conftest import merchant, shop, simulator_url

__all__ = ["merchant", "shop", "simulator_url"]
