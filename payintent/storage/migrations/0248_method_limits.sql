-- The limits of a payment method, such as USD:0.50:1000, instead of its gateway's for that currency.
ALTER TABLE payment_method
    ADD COLUMN limits text[] NOT NULL DEFAULT '{}'
    CONSTRAINT payment_method_limits CHECK (cardinality(limits) <= 100);
