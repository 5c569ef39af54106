-- What a session asks for on its chain is all its own: the token table may change later.
ALTER TABLE session
    ADD COLUMN token_decimals int,
    ADD COLUMN token_zero_first boolean;  -- an allowance must be zero before it is changed
UPDATE session s
SET token_decimals = t.decimals, token_zero_first = t.approve_zero_first
FROM chain_token t
WHERE t.chain = s.chain AND t.symbol = s.token AND s.life <> 'ended';
DROP TRIGGER session_token_frozen ON session;
CREATE TRIGGER session_token_frozen
    BEFORE UPDATE OF token_address, token_decimals, token_zero_first ON session
    FOR EACH ROW EXECUTE FUNCTION session_quote_frozen();

-- A refund whose transactions were reverted again and again is a case.
ALTER TABLE chain_refund_try ADD COLUMN reverts int NOT NULL DEFAULT 0;

-- What went back without a second person, summed over a day.
CREATE INDEX refund_unapproved ON refund (merchant_id, created_at)
    WHERE destination IS NOT NULL AND approved_by IS NULL;
