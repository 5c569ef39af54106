-- What the checkout shows of a merchant beside its logo: its colour, and its terms.
ALTER TABLE merchant
    ADD COLUMN accent_colour text
        CONSTRAINT merchant_accent_colour CHECK (accent_colour ~ '^#[0-9a-f]{6}$'),
    ADD COLUMN terms_url text;
