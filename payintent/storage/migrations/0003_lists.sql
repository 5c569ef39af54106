-- A payer's payments of one kind are looked up as a merchant's are: a payer may be everybody.
DROP INDEX payment_listed_payer;
CREATE INDEX payment_listed_payer ON payment (merchant_id, payer_uid, currency, status, created_at, id);
