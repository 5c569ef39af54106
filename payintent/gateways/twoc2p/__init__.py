"""The gateway 2C2P."""
