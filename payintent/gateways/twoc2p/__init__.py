"""The 2C2P adapter."""
