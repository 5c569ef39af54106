"""A payment gateway of its own, for trying and testing: own process, state and wire format."""
