"""What an agent reads of each tool and parameter, and where a tool asks for more than the API."""

from __future__ import annotations

#: By the name of the SDK's call.
TOOLS = {
    "advance_test_clock": (
        "Move the clock of this test merchant forward: payments expire, refunds and webhooks that "
        "wait become due. It cannot be moved back."
    ),
    "cancel_payment": "Cancel a payment that is not paid. Refused where it has ended otherwise.",
    "create_payment": (
        "Create a payment. The buyer pays it at the `checkout_url` of the answer. An answer with "
        "`fds` and no `id` means that the fraud rules deny it: nothing was created."
    ),
    "create_refund": (
        "Refund an amount of a paid payment. Never more than was captured; some refunds wait for "
        "a person of the operator's to agree."
    ),
    "decline_test_payment": (
        "Have the card of a test payment's buyer declined, with a code: the payment fails."
    ),
    "dispute_test_payment": (
        "Have the bank of a test payment's buyer dispute what was paid, or decide the dispute."
    ),
    "get_balance": "What the merchant is owed now, by currency.",
    "get_catalog": "In which countries and currencies the merchant can be paid, and by what.",
    "get_payment": "A payment as it is now, by its id.",
    "get_refund": "A refund as it is now, by its id.",
    "get_statement": "One day's statement and its lines: what each payment or refund moved.",
    "get_test_clock": "How far the clock of this test merchant was moved forward.",
    "list_cases": "Money that a person looks at: taken twice, too much, or for an unknown payment.",
    "list_disputes": "What buyers object to at their banks, with amounts and deadlines.",
    "list_events": (
        "What happened to payments, oldest first: the same events that webhooks bring, with the "
        "state of their delivery."
    ),
    "list_payments": "Payments, newest first, one page at a time.",
    "list_refunds": "The refunds of one payment, one page at a time.",
    "list_statements": "Closed days, newest first: opening and closing balance, and between them.",
    "list_updated_refunds": "The refunds of all payments by their last change, one page at a time.",
    "pay_test_payment": (
        "Have the buyer of a test payment pay with a test card, which decides what happens."
    ),
    "replay_event": "Have the webhook of an event sent to the merchant's server again.",
}

#: A name means the same in every tool.
PARAMETERS = {
    "after": "The `after` of the page before; nothing for the oldest event that is kept.",
    "amount": 'In whole units of the currency, as text: "1590.00". Never a computed float.',
    "card": "The number of a test card; 4242424242424242, which is approved, if left out.",
    "code": "Why it is declined, such as insufficient_funds; card_declined if left out.",
    "country": "The buyer's country, two letters (ISO 3166-1).",
    "created_from": "Not before this time; RFC 3339 with a time zone.",
    "created_to": "Before this time; RFC 3339 with a time zone.",
    "currency": "Three letters (ISO 4217), or a token's symbol.",
    "cursor": "The `next_cursor` of the page before.",
    "destination": "The address that gets tokens back, where it is not the payer's own.",
    "event_id": "The id of an event.",
    "expires_in": "Seconds until the payment expires.",
    "idempotency_key": (
        "A UUID that you make once for this purchase or refund. Asked again with the same key, the "
        "service does it once only: use the same key again after an error or a lost answer."
    ),
    "include_pegged_assets": "Whether tokens pegged to the currency may pay it too.",
    "kind": "The kind of case, such as UNKNOWN_REFERENCE or DISPUTE.",
    "limit": "How many at most.",
    "metadata": "A JSON object of the merchant's own, such as the order's id.",
    "payer_email": "The buyer's e-mail address.",
    "payer_uid": "The buyer's id at the merchant.",
    "payment_id": "The id of a payment, `pay_` and 22 characters.",
    "reason": "Why, in a few words; it is kept with the refund.",
    "refund_id": "The id of a refund, `ref_` and 22 characters.",
    "seconds": "How far to advance the clock of this test merchant.",
    "state": "How far the dispute is to be: open, won or lost; open if left out.",
    "statement_id": "The id of a statement, `stmt_` and 22 characters.",
    "status": "Only those in this state.",
    "types": "Only these types, such as payment.completed.",
    "updated_since": "Changed at or after this time; RFC 3339 with a time zone.",
}

#: An agent asks again after a lost answer: without a key of its own it would buy or refund twice.
#: And "all that is left" is not what an agent that forgets the amount should mean.
REQUIRED = {
    "create_payment": {"idempotency_key"},
    "create_refund": {"amount", "idempotency_key"},
}

#: A call of an agent does not wait for events, and a cancellation or an act of
#: tests that is repeated does no harm.
LEFT_OUT = {
    "list_events": {"wait"},
    "cancel_payment": {"idempotency_key"},
    "pay_test_payment": {"idempotency_key"},
    "decline_test_payment": {"idempotency_key"},
    "dispute_test_payment": {"idempotency_key"},
}
