"""The ledger, statements and payouts."""
