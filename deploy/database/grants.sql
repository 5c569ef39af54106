-- The privileges of each role. Run this file in the service's database as payintent_migrate or a superuser,
-- after the first `payintent migrate` and after each run that applies a migration. You can run it while
-- payments continue. A test checks it against the statements of the service.
BEGIN;
SET LOCAL ROLE payintent_migrate;  -- default privileges belong to the owner
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO payintent_api, payintent_worker, payintent_read;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM payintent_api, payintent_worker, payintent_read;
-- New tables can be used immediately. The exact privileges follow below.
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO payintent_api, payintent_worker;

-- Payments and their history.
GRANT SELECT, INSERT, UPDATE ON
    payment, session, capture, refund, money_case, callback, delivery, idempotency, gateway_outage,
    chain_cursor, chain_hint, chain_receipt, chain_refund, chain_refund_try, chain_sighting,
    buyer_attempt, buyer_call_state, fraud_decision, catalog_shown, installation, ring_key, dispute,
    deposit_address, sweep_batch, sweep_item
TO payintent_api, payintent_worker;
-- A batch without addresses is deleted before its transaction commits.
GRANT DELETE ON sweep_batch TO payintent_api, payintent_worker;
-- Resuming a chain deletes the deposits to reread. Foreign keys protect transfers with a capture or case.
GRANT DELETE ON chain_receipt TO payintent_api;

-- Rows that never change.
GRANT SELECT, INSERT ON checkout, event, attempt, ledger_entry, deposit_sweep
TO payintent_api, payintent_worker;
-- The API sets the position of an event in its merchant's feed.
GRANT UPDATE (feed_position) ON event TO payintent_api;
GRANT SELECT, INSERT, UPDATE ON event_feed TO payintent_api;
-- The API erases a payer's data after approval by two operators.
GRANT UPDATE (body) ON event TO payintent_api;
GRANT UPDATE (detail, answer) ON attempt TO payintent_api;
-- Workers seal events if the setting is enabled.
GRANT UPDATE (body) ON event TO payintent_worker;
-- Clocks of test merchants.
GRANT SELECT, INSERT, UPDATE ON test_clock TO payintent_api;
-- The test gateway's data, without real money.
GRANT SELECT, INSERT, UPDATE ON test_session, test_refund, test_transfer
    TO payintent_api, payintent_worker;

-- Payment links. A trigger rejects changes to their terms.
GRANT SELECT, INSERT ON payment_link TO payintent_api;
GRANT UPDATE (expires_at, deactivated_at, deactivated_by) ON payment_link TO payintent_api;
GRANT SELECT, INSERT ON payment_link_use TO payintent_api;
GRANT UPDATE (payment_id) ON payment_link_use TO payintent_api;
-- Workers compose the email that contains a link.
GRANT SELECT ON payment_link, payment_link_use TO payintent_worker;

-- Payouts to merchants. A trigger rejects all changes except a reversal.
GRANT SELECT, INSERT ON payout TO payintent_api;
GRANT UPDATE (reversed_at, reversed_by, reversal_note) ON payout TO payintent_api;
GRANT SELECT ON payout TO payintent_worker;
-- Payouts from gateways to the operator, which workers also read from settlement files.
GRANT SELECT, INSERT ON gateway_payout TO payintent_api, payintent_worker;
GRANT UPDATE (reversed_at, reversed_by, reversal_note) ON gateway_payout
TO payintent_api, payintent_worker;

-- Statements: workers create them, and no role can change them.
GRANT SELECT, INSERT ON statement TO payintent_api, payintent_worker;
GRANT SELECT, INSERT, UPDATE ON statement_close TO payintent_api, payintent_worker;
GRANT SELECT ON SEQUENCE ledger_entry_entry_number_seq TO payintent_api, payintent_worker;

-- Reconciliation runs: workers create them, and the API restarts a failed run.
GRANT SELECT, INSERT, UPDATE ON reconciliation_run TO payintent_api, payintent_worker;
GRANT SELECT, INSERT ON reconciliation_sum, reconciliation_file, reconciliation_balance
TO payintent_api, payintent_worker;
-- Workers add up a chain's logs range by range.
GRANT SELECT, INSERT, UPDATE ON reconciliation_blocks TO payintent_api, payintent_worker;
GRANT UPDATE ON reconciliation_sum TO payintent_api, payintent_worker;
GRANT DELETE ON reconciliation_file TO payintent_api;
GRANT SELECT ON reconciliation_run, reconciliation_sum, reconciliation_blocks,
    reconciliation_balance
TO payintent_read;

-- Rows that are deleted after their retention period.
GRANT DELETE ON idempotency, callback, gateway_outage, fraud_decision, buyer_attempt, chain_sighting,
    attempt, delivery, event
TO payintent_api, payintent_worker;

-- Operators' configuration. Workers read it, except for keys and tokens.
GRANT SELECT, INSERT, UPDATE ON
    merchant, callback_secret, provider, provider_account, payment_method, tax_rate, restriction,
    fraud_rule, rate_limit, chain, chain_contract, chain_token, api_key, operator_token, proposal
TO payintent_api;
GRANT DELETE ON tax_rate, rate_limit TO payintent_api;
GRANT SELECT ON
    merchant, callback_secret, provider, provider_account, payment_method, tax_rate, restriction,
    fraud_rule, rate_limit, chain, chain_contract, chain_token
TO payintent_worker;

-- Pending email, which is deleted once it has been sent.
GRANT SELECT, INSERT, UPDATE, DELETE ON mail TO payintent_api, payintent_worker;

-- Hourly totals: workers compute them, and the console shows them.
GRANT SELECT, INSERT, UPDATE, DELETE ON hourly_figure TO payintent_api, payintent_worker;
GRANT SELECT, UPDATE ON figure_mark TO payintent_api, payintent_worker;
GRANT SELECT ON hourly_figure, figure_mark TO payintent_read;

-- Only for the API.
GRANT SELECT, INSERT, UPDATE, DELETE ON rate_state TO payintent_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON console_session, completed_sign_in TO payintent_api;
GRANT SELECT, INSERT, UPDATE ON operator_identity TO payintent_api;
GRANT SELECT, INSERT ON audit TO payintent_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON member, member_link, member_passkey, member_session
TO payintent_api;

-- The API writes these rows for merchants' developers, and workers delete them after the retention period.
GRANT SELECT, INSERT, DELETE ON api_call TO payintent_api;
GRANT SELECT, DELETE ON api_call TO payintent_worker;

-- Each caller of a gateway writes these rows, and workers delete them after the retention period.
GRANT SELECT, INSERT, DELETE ON gateway_call TO payintent_api, payintent_worker;

-- Triggers update this table together with the configuration and the published catalogs.
GRANT SELECT, UPDATE ON configuration_version TO payintent_api, payintent_worker;
GRANT SELECT ON configuration_version TO payintent_read;

-- Webhook endpoints with an open circuit breaker, which the console shows.
GRANT SELECT, INSERT, UPDATE, DELETE ON endpoint_outage TO payintent_api, payintent_worker;
GRANT SELECT ON endpoint_outage TO payintent_read;

-- Only `payintent migrate` changes this table.
GRANT SELECT ON schema_migration TO payintent_api, payintent_worker, payintent_read;

-- Read access for people: no secrets, no capabilities and no buyers' data.
GRANT SELECT ON
    capture, delivery, gateway_outage, chain_cursor, chain_refund_try, chain_sighting,
    fraud_decision, provider, payment_method, tax_rate, restriction, rate_limit, chain,
    chain_contract, chain_token, catalog_shown, audit, ledger_entry, deposit_address, deposit_sweep,
    sweep_batch, sweep_item
TO payintent_read;
GRANT SELECT (id, merchant_id, payment_id, capture_id, case_id, amount, amount_text, currency,
    amount_minor, status, failure_reason, step, reference, requested_by, approved_by, inquiries,
    next_at, sent_at, created_at, updated_at, address_entries) ON refund TO payintent_read;
GRANT SELECT (id, kind, merchant_id, payment_id, session_id, capture_id, status, opened_at,
    receipt_id, closed_at, closed_by, refund_id) ON money_case TO payintent_read;
GRANT SELECT (id, account_id, reference, capture_id, case_id, state, funds, amount_minor, currency,
    respond_by, held_minor, created_at, updated_at) ON dispute TO payintent_read;
GRANT SELECT (id, chain, account_id, block, block_hash, tx_hash, log_index, uuid, token, receiver,
    amount, session_id, disposition, final_at, mined_at, deposit_capture_id, deposit_sweep_id)
    ON chain_receipt TO payintent_read;
GRANT SELECT (id, chain, account_id, block, tx_hash, log_index, uuid, refund_ref, token, amount,
    sender, disposition, refund_id, final_at) ON chain_refund TO payintent_read;
GRANT SELECT (id, name, activation, activated_at, created_at, default_country, locale, countries,
    currencies, tax_manager, tax_country, auto_refund, deposit_tolerance) ON merchant TO payintent_read;
GRANT SELECT (id, merchant_id, status, version, currency, amount, session_id, failure_reason,
    refunded_amount, reserved_amount, expires_at, paid_at, failed_at, expired_at, cancelled_at,
    created_at, updated_at) ON payment TO payintent_read;
GRANT SELECT (id, payment_id, account_id, payment_method_id, provider, provider_name, life, outcome,
    kind, chain, token, currency, amount, total_amount, total_minor, inquire_at, inquiries,
    declines, silent_since, opened_at, closing_at, ended_at) ON session TO payintent_read;
GRANT SELECT (id, payment_id, merchant_id, type, occurred_at) ON event TO payintent_read;
GRANT SELECT (id, event_id, number, outcome, status, duration_ms, started_at)
    ON attempt TO payintent_read;
GRANT SELECT (id, provider, merchant_id, name, countries, enabled, created_at, changed_at)
    ON provider_account TO payintent_read;
GRANT SELECT (id, action, merchant_id, proposed_by, proposed_at, expires_at, status, decided_by,
    decided_at) ON proposal TO payintent_read;

-- Workers delete the sealed arguments of lapsed proposals.
GRANT SELECT (id, sealed, expires_at), UPDATE (sealed) ON proposal TO payintent_worker;
COMMIT;
