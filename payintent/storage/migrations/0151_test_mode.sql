-- Test mode (decision 73). The test side of a merchant is a merchant by itself: whatever is bound
-- to a merchant is bound to a mode. A merchant's mode never changes once it has a key.
ALTER TABLE merchant
    ADD COLUMN livemode boolean NOT NULL DEFAULT true,
    ADD COLUMN live_merchant bigint,  -- whose test side it is
    ADD CONSTRAINT merchant_test_side CHECK (livemode = (live_merchant IS NULL)) NOT VALID,
    ADD CONSTRAINT merchant_live_merchant FOREIGN KEY (live_merchant) REFERENCES merchant (id)
        NOT VALID,
    ADD CONSTRAINT merchant_one_test_side UNIQUE (live_merchant),
    ADD CONSTRAINT merchant_mode UNIQUE (id, livemode);

-- Keys and accounts are of one mode, and a method is of its merchant's and its account's.
ALTER TABLE api_key
    ADD COLUMN livemode boolean NOT NULL DEFAULT true,
    ADD CONSTRAINT api_key_mode FOREIGN KEY (merchant_id, livemode)
        REFERENCES merchant (id, livemode) NOT VALID;
ALTER TABLE provider_account
    ADD COLUMN livemode boolean NOT NULL DEFAULT true,
    ADD CONSTRAINT provider_account_one_mode UNIQUE (id, livemode),
    ADD CONSTRAINT provider_account_mode FOREIGN KEY (merchant_id, livemode)
        REFERENCES merchant (id, livemode) NOT VALID;
ALTER TABLE payment_method
    ADD COLUMN livemode boolean NOT NULL DEFAULT true,
    ADD CONSTRAINT payment_method_merchant_mode FOREIGN KEY (merchant_id, livemode)
        REFERENCES merchant (id, livemode) NOT VALID,
    ADD CONSTRAINT payment_method_account_mode FOREIGN KEY (account_id, livemode)
        REFERENCES provider_account (id, livemode) NOT VALID;
