"""Chain, token and contract configuration."""
