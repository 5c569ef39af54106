-- Upgrade a database of the last version before 1.0 (schema number 249) to 0001_initial. Since 1.0,
-- an installation has a single database, so the tables, triggers and columns of cells are dropped.
DO $$
BEGIN
    IF EXISTS (SELECT FROM cell WHERE number <> 0)
        OR EXISTS (SELECT FROM installation WHERE cell <> 0)
        OR EXISTS (SELECT FROM cell_transfer) THEN
        RAISE EXCEPTION 'its payments are in several cells, which version 1.0 cannot read'
            USING ERRCODE = 'feature_not_supported';
    END IF;
END $$;

DROP FUNCTION copied_only() CASCADE;
DROP FUNCTION note_change() CASCADE;
DROP FUNCTION copy_rows(text, jsonb);
DROP FUNCTION drop_copies(text, jsonb, jsonb);
DROP FUNCTION copied_columns(regclass, jsonb);
DROP FUNCTION copies_begin();
DROP FUNCTION takes_creates(bigint, int, timestamptz);
DROP FUNCTION merchant_place_lock(bigint, int);
DROP TABLE cell_transfer, cell_process, merchant_cell, cell, configuration_change,
    configuration_copy;
DROP FUNCTION cell_step();
DROP FUNCTION cell_transfer_whole();
DROP FUNCTION cell_transfer_stands();

CREATE OR REPLACE FUNCTION change_configuration_version() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE configuration_version
    SET version = gen_random_uuid();
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION market_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.market_changed_at = clock();
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION payout_within_payable() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7002, hashint8(NEW.merchant_id));
    IF NEW.amount_minor > merchant_payable(NEW.merchant_id, NEW.currency, NEW.chain) THEN
        RAISE EXCEPTION 'a payout is above what its merchant is owed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_within_payable';
    END IF;
    RETURN NEW;
END $$;

ALTER TABLE installation DROP COLUMN cell, DROP COLUMN id;
ALTER TABLE configuration_version
    DROP COLUMN number, DROP COLUMN token, DROP COLUMN changed_at;
ALTER TABLE reconciliation_blocks DROP COLUMN cell_away;
ALTER TABLE chain_contract
    DROP CONSTRAINT chain_contract_once,
    ADD CONSTRAINT chain_contract_once UNIQUE (chain, address);
ALTER TABLE session VALIDATE CONSTRAINT session_number;
ALTER TABLE ledger_entry
    DROP CONSTRAINT ledger_entry_fact,
    DROP CONSTRAINT ledger_entry_debit,
    DROP CONSTRAINT ledger_entry_credit,
    ADD CONSTRAINT ledger_entry_fact CHECK (fact IN (
        'capture', 'capture_adopted', 'refund_reserved', 'refund_done', 'refund_reversed',
        'dispute_opened', 'dispute_moved', 'dispute_won', 'dispute_lost', 'case_accepted',
        'case_dismissed', 'gateway_payout', 'payout', 'adjustment'
    )),
    ADD CONSTRAINT ledger_entry_debit CHECK (split_part(debit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
        'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank'
    )),
    ADD CONSTRAINT ledger_entry_credit CHECK (split_part(credit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
        'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank'
    ));
