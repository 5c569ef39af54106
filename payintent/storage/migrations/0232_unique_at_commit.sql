-- A cell's copies may pass through two rows of one contract: what was lost is taken away after what
-- replaced it is written. So this key can be checked at the end.
ALTER TABLE chain_contract DROP CONSTRAINT chain_contract_once;
ALTER TABLE chain_contract
    ADD CONSTRAINT chain_contract_once UNIQUE (chain, address) DEFERRABLE;
