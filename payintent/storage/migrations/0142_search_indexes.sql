-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- The hash indexes of 0128 kept all payments with the same e-mail, and all receipts from the same
-- address, in one chain of pages, and each new one walked through it: a shop that always sends the
-- same e-mail made every create slower. A B-tree keeps equal values in order instead.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_payer_email ON payment (lower(payer_email))
WHERE payer_email IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS payment_email;
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_payer_address ON chain_receipt (payer);
DROP INDEX CONCURRENTLY IF EXISTS chain_receipt_payer;
