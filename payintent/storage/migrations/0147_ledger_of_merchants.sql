-- concurrently: each statement by itself, so that payments go on being made meanwhile
CREATE INDEX CONCURRENTLY IF NOT EXISTS ledger_entry_of_merchant
ON ledger_entry (merchant_id, entry_number);
