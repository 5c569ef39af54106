"""PostgreSQL: driver, pool, transactions, batches, replica reads, lists and migrations."""
