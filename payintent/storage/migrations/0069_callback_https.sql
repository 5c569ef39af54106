-- Webhooks go by https, but to merchants that the operator excepts: those that have http now.
-- In the sandbox a merchant with such an address is excepted by itself.
ALTER TABLE merchant ADD COLUMN allow_http boolean NOT NULL DEFAULT false;

UPDATE merchant
SET allow_http = true
WHERE callback_url ILIKE 'http://%';

ALTER TABLE merchant
    ADD CONSTRAINT merchant_callback_https CHECK (allow_http OR callback_url NOT ILIKE 'http://%');
