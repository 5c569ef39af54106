-- By currency, what a merchant may refund at gateways in a day without a second person; a currency
-- that is not named has no threshold.
ALTER TABLE merchant
ADD COLUMN refund_approval_above jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT merchant_refund_approval CHECK (jsonb_typeof(refund_approval_above) = 'object');
