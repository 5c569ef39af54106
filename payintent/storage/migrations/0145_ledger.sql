-- The double-entry ledger. A row moves one amount from one account to another, so that every row,
-- and all rows together, sum to zero. Added to in the transaction of the fact, never changed
-- (decision 72). Without foreign keys: `payintent ledger check` compares it with its facts.
CREATE TABLE ledger_entry (
    fact_id uuid NOT NULL,
    fact text NOT NULL CONSTRAINT ledger_entry_fact CHECK (fact IN (
        'capture', 'capture_adopted', 'refund_reserved', 'refund_done', 'refund_reversed',
        'dispute_opened', 'dispute_moved', 'dispute_won', 'dispute_lost',
        'case_accepted', 'case_dismissed', 'gateway_payout', 'payout', 'adjustment')),
    leg text NOT NULL,
    merchant_id bigint,
    debit text NOT NULL,
    credit text NOT NULL,
    amount numeric(78) NOT NULL CONSTRAINT ledger_entry_amount CHECK (amount > 0),
    currency text NOT NULL,
    chain text,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (fact_id, fact, leg),
    CONSTRAINT ledger_entry_accounts CHECK (debit <> credit),
    CONSTRAINT ledger_entry_debit CHECK (split_part(debit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
        'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank')),
    CONSTRAINT ledger_entry_credit CHECK (split_part(credit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
        'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank'))
);
CREATE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is only ever added to'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_append_only';
END $$;
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
