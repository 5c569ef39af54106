-- concurrently: each statement by itself, so that payments go on being made meanwhile
CREATE INDEX CONCURRENTLY IF NOT EXISTS provider_account_of_merchant
ON provider_account (merchant_id) WHERE merchant_id IS NOT NULL;
