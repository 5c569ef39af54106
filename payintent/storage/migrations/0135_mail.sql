-- E-mail that waits to be sent; a row is deleted when it was sent or given up. A receipt is written
-- from its payment when it is sent, so nothing of the buyer is here; other mail is sealed.
CREATE TABLE mail (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    kind text NOT NULL CONSTRAINT mail_kind CHECK (kind IN ('invitation', 'receipt')),
    payment_id uuid REFERENCES payment,
    sealed bytea,
    attempts integer NOT NULL DEFAULT 0 CONSTRAINT mail_attempts CHECK (attempts >= 0),
    created_at timestamptz NOT NULL DEFAULT clock(),
    next_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT mail_content CHECK (
        (kind = 'receipt') = (payment_id IS NOT NULL) AND (kind = 'receipt') = (sealed IS NULL)
    )
);
CREATE INDEX mail_due ON mail (next_at);
CREATE INDEX mail_created ON mail (created_at);
CREATE UNIQUE INDEX mail_receipt_once ON mail (payment_id);

-- Whether buyers who gave an address get a receipt by e-mail.
ALTER TABLE merchant ADD COLUMN mail_receipts boolean NOT NULL DEFAULT false;
