"""The simulator and a merchant, as the simulator's own tests have them."""

from tests.sandbox.simulator.conftest import merchant, shop, simulator_url

__all__ = ["merchant", "shop", "simulator_url"]
