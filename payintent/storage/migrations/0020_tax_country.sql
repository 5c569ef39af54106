-- Whose country decides the tax: the one that the buyer has chosen, or the merchant's.

ALTER TABLE merchant
    ADD COLUMN tax_country text NOT NULL DEFAULT 'selection'
        CONSTRAINT merchant_tax_country CHECK (tax_country IN ('selection', 'merchant'));
