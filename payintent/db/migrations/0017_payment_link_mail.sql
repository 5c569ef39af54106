-- A member can mail a payment link to a buyer.
ALTER TABLE mail
    DROP CONSTRAINT mail_kind,
    ADD CONSTRAINT mail_kind
        CHECK (kind IN ('invitation', 'receipt', 'refund_address', 'payment_link')) NOT VALID;
