"""Descriptions of tools and parameters, and parameters that are stricter than the API."""

from __future__ import annotations

#: Descriptions by the name of the SDK call.
TOOLS = {
    "advance_test_clock": (
        "Advance the clock of this test merchant: payments expire, and pending refunds and "
        "webhooks become due. The clock cannot be moved back."
    ),
    "cancel_payment": "Cancel an unpaid payment. Fails if the payment has already ended.",
    "create_payment": (
        "Create a payment. The buyer pays at the `checkout_url` of the response. A response with "
        "`fds` and without `id` means that the fraud rules denied the payment, and nothing was "
        "created."
    ),
    "create_payment_link": (
        "Create a page on which buyers pay without a shop. Share its `url`. Without `amount`, the "
        "buyer enters an amount. The terms cannot be changed later."
    ),
    "create_refund": (
        "Refund an amount of a paid payment, up to the captured amount. Some refunds need the "
        "operator's approval."
    ),
    "deactivate_payment_link": (
        "Stop a payment link from creating payments. It cannot be activated again."
    ),
    "decline_test_payment": (
        "Decline the card of a test payment with a decline code: the payment fails."
    ),
    "dispute_test_payment": ("Dispute a test payment as the buyer's bank, or decide its dispute."),
    "get_balance": "Read the amounts currently owed to the merchant, by currency.",
    "get_catalog": "Read the countries, currencies and methods that the merchant accepts.",
    "get_chain": (
        "Read a chain, its contracts and its tokens. Verify the data through another channel."
    ),
    "get_onchain_session": (
        "Read a payment on a chain: its deposit address, the amounts received, pending and "
        "remaining, and its transactions. The address is not verified: do not show it to a buyer "
        "or send money to it."
    ),
    "get_payment": "Read the current state of a payment, by its id.",
    "get_payment_link": "Read a payment link with its status and its number of uses.",
    "get_refund": "Read the current state of a refund, by its id.",
    "get_statement": (
        "Read a daily statement and its lines, one for each payment, refund, dispute or payout."
    ),
    "get_test_clock": "Read how far this test merchant's clock has been advanced in total.",
    "list_cases": (
        "List money that needs manual review, for example because it was captured twice."
    ),
    "list_disputes": (
        "List disputes that buyers raised with their banks, with amounts and deadlines."
    ),
    "list_events": (
        "List payment events, oldest first: the same events as in webhooks, with the state of "
        "their delivery."
    ),
    "list_payment_links": "List payment links, newest first, in pages.",
    "list_payments": "List payments, newest first, in pages.",
    "list_refunds": "List the refunds of a payment, newest first, in pages.",
    "list_statements": "List daily statements, newest first, with opening and closing balances.",
    "list_updated_refunds": "List the refunds of all payments, most recently changed first.",
    "pay_test_payment": "Pay a test payment with a test card, which determines the outcome.",
    "replay_event": "Resend the webhook of an event to the merchant's server.",
    "transfer_to_test_payment": (
        "Send tokens to the test address of a payment. Default: the remaining amount."
    ),
}

#: Descriptions of parameters, which have the same meaning in every tool.
PARAMETERS = {
    "after": (
        "The `after` of the previous page; omit it to start with the events of the last 30 days."
    ),
    "amount": (
        'In major units of the currency, as a string such as "1590.00". Do not compute with floats.'
    ),
    "amount_max": "The highest amount that the buyer can enter, if the link has no `amount`.",
    "amount_min": "The lowest amount that the buyer can enter, if the link has no `amount`.",
    "cancel_url": "The shop's page for a buyer who has not paid. Default: `return_url`.",
    "card": "The number of a test card. Default: 4242424242424242, which is approved.",
    "code": "The decline code, such as insufficient_funds. Default: card_declined.",
    "country": "The buyer's country, two letters (ISO 3166-1).",
    "created_from": "Created at or after this time; RFC 3339 with a time zone.",
    "created_to": "Created before this time; RFC 3339 with a time zone.",
    "currency": "Three letters (ISO 4217), or a token's symbol.",
    "cursor": "The `next_cursor` of the previous page.",
    "description": "A description of the product, at most 500 characters.",
    "destination": "The address for the refunded tokens, if it differs from the payer's address.",
    "event_id": "The id of an event.",
    "expires_at": "The time at which the link stops creating payments; RFC 3339 with a time zone.",
    "expires_in": "Seconds until the payment expires.",
    "idempotency_key": (
        "A UUID that you generate once for this purchase or refund. The service executes requests "
        "with the same key only once: reuse the key after an error or a lost response."
    ),
    "include_pegged_assets": (
        "Whether the buyer can also pay with tokens that are pegged to the currency."
    ),
    "kind": "The kind of case, such as UNKNOWN_REFERENCE or DISPUTE.",
    "limit": "The maximum number of results.",
    "link_id": "The id of a payment link, `plink_` and 22 characters.",
    "max_uses": (
        "The maximum number of the link's payments that can be open or paid. Default: no limit."
    ),
    "metadata": "The merchant's own data as a JSON object, for example with the order id.",
    "order_id": "The merchant's order or invoice number, at most 120 characters.",
    "payer_email": "The buyer's email address.",
    "payer_uid": "The buyer's id at the merchant.",
    "payment_id": "The id of a payment, `pay_` and 22 characters.",
    "reason": "A short reason, which is stored with the refund.",
    "refund_id": "The id of a refund, `ref_` and 22 characters.",
    "return_url": "The shop's page to which the buyer returns. Its origin must be registered.",
    "seconds": "The number of seconds by which to advance the clock of this test merchant.",
    "session_id": "The id of an on-chain session, `sess_` and 22 characters.",
    "slug": "The name of a chain: ethereum, bsc or native.",
    "state": "The state of the dispute: open, won or lost. Default: open.",
    "statement_id": "The id of a statement, `stmt_` and 22 characters.",
    "status": "Only results with this status.",
    "title": "The product that the buyer pays for, at most 120 characters.",
    "token": "A token of the test chain: USDT or USDC. Default: the token that the buyer selected.",
    "types": "Only these types, such as payment.completed.",
    "updated_since": "Changed at or after this time; RFC 3339 with a time zone.",
}

#: Agents repeat calls after a lost response. Without a key, they would pay or refund twice.
#: Without an amount, they could refund the full remainder by mistake.
REQUIRED = {
    "create_payment": {"idempotency_key"},
    "create_payment_link": {"idempotency_key"},
    "create_refund": {"amount", "idempotency_key"},
}

#: Calls by agents do not wait for events. Repeated cancellations and test actions are harmless.
LEFT_OUT = {
    "list_events": {"wait"},
    "cancel_payment": {"idempotency_key"},
    "pay_test_payment": {"idempotency_key"},
    "decline_test_payment": {"idempotency_key"},
    "dispute_test_payment": {"idempotency_key"},
}
