-- What automatic refunds on a chain may cost: a floor per token below which a person decides, and
-- the gas of a day. A refund of a token on Ethereum can cost more than 10 USD.
ALTER TABLE chain
ADD COLUMN auto_refund_gas bigint NOT NULL DEFAULT 3000000
    CONSTRAINT chain_auto_refund_gas CHECK (auto_refund_gas >= 0);

ALTER TABLE chain_token
ADD COLUMN auto_refund_from numeric NOT NULL DEFAULT 1
    CONSTRAINT chain_token_auto_refund_from CHECK (auto_refund_from >= 0);
UPDATE chain_token SET auto_refund_from = 20 WHERE chain = 'ethereum';

-- In each cell: what its workers have spent of the gas of one day, UTC.
ALTER TABLE chain_cursor
ADD COLUMN auto_refund_day date,
ADD COLUMN auto_refund_gas_used bigint NOT NULL DEFAULT 0;
