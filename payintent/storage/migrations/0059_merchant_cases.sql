-- A merchant lists its own cases, newest first.
CREATE INDEX money_case_merchant ON money_case (merchant_id, id) WHERE merchant_id IS NOT NULL;
