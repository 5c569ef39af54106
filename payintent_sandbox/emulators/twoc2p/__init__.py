"""A counterpart of 2C2P's hosted page, for trying and testing: own process, state and crypto."""
