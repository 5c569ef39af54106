-- A cell's copies may pass through two rows of one contract, or two test sides of one merchant: what
-- was lost is taken away after what replaced it is written. So these keys can be checked at the end.
ALTER TABLE chain_contract DROP CONSTRAINT chain_contract_once;
ALTER TABLE chain_contract
    ADD CONSTRAINT chain_contract_once UNIQUE (chain, address) DEFERRABLE;
ALTER TABLE merchant DROP CONSTRAINT merchant_one_test_side;
ALTER TABLE merchant
    ADD CONSTRAINT merchant_one_test_side UNIQUE (live_merchant) DEFERRABLE;
