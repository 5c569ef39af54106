"""Development chains: anvil, the deployed contracts, and their commands."""
