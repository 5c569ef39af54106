"""The ledger, merchants' statements, and payouts."""
