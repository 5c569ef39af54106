"""Configuration of chains, tokens and contracts."""
