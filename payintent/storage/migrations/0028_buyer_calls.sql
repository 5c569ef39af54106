-- What buyers can make us ask of gateways is bounded: of each account, each payment and each session.
CREATE UNLOGGED TABLE buyer_call_state (
    account_id bigint PRIMARY KEY,
    full_at numeric NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE session
    ADD COLUMN number smallint,  -- among its payment's; NULL of those before this version
    ADD COLUMN returned_at timestamptz,  -- when a buyer's return last had the gateway asked
    ADD CONSTRAINT session_number CHECK (number BETWEEN 1 AND 20) NOT VALID;
