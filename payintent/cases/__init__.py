"""Cases for manual review: unassigned money and discrepancies."""
