"""The tables of chains, transfers and on-chain refunds."""
