"""`python -m drills.books` checks many merchants' ledger entries and event feeds under faults."""
