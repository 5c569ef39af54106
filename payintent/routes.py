"""Every route of the service on one screen."""

from starlette.routing import BaseRoute, Route

from payintent.api import (
    callbacks,
    cases,
    catalog,
    checkout,
    checkout_events,
    disputes,
    event_feed,
    health,
    list_payments,
    onchain,
    operator,
    payments,
    public,
    refunds,
    statements,
    test_clock,
)
from payintent.api.docs import pages
from payintent.checkout import codes, page, pictures, sdk_files, static_files
from payintent.console.routes import CONSOLE_ROUTES

# Hot routes first: they are tried in this order, and each that does not match costs a microsecond.
ROUTES: list[BaseRoute] = [
    Route("/v1/payments", payments.post_payment, methods=["POST"]),
    Route("/v1/payments/{payment_id}", payments.get_payment, methods=["GET"]),
    Route("/v1/callbacks/{provider}/{account_id}", callbacks.post_callback, methods=["POST"]),
    Route("/v1/checkout/{checkout_id}", checkout.get_checkout, methods=["GET"]),
    Route("/v1/checkout/{checkout_id}/quotes", checkout.get_quotes, methods=["GET"]),
    Route("/v1/catalog", catalog.get_catalog, methods=["GET"]),
    Route("/v1/payments", list_payments.list_payments, methods=["GET"]),
    Route("/v1/payments/{payment_id}/cancel", payments.cancel_payment, methods=["POST"]),
    Route("/v1/payments/{payment_id}/refunds", refunds.post_refund, methods=["POST"]),
    Route("/v1/payments/{payment_id}/refunds", refunds.list_refunds, methods=["GET"]),
    Route("/v1/refunds/{refund_id}", refunds.get_refund, methods=["GET"]),
    Route("/v1/events", event_feed.read_event_feed, methods=["GET"]),
    Route("/v1/events/{event_id}/replay", event_feed.replay_event, methods=["POST"]),
    Route("/v1/refunds", refunds.list_updated_refunds, methods=["GET"]),
    Route("/v1/cases", cases.list_cases, methods=["GET"]),
    Route("/v1/balance", statements.get_balance, methods=["GET"]),
    Route("/v1/statements", statements.list_statements, methods=["GET"]),
    Route("/v1/statements/{statement_id}", statements.get_statement, methods=["GET"]),
    Route("/v1/test/clock", test_clock.get_test_clock, methods=["GET"]),
    Route("/v1/test/clock/advance", test_clock.advance_test_clock, methods=["POST"]),
    Route("/v1/disputes", disputes.list_disputes, methods=["GET"]),
    Route("/v1/checkout/{checkout_id}", checkout.patch_checkout, methods=["PATCH"]),
    Route("/v1/checkout/{checkout_id}/quotes", checkout.post_quotes, methods=["POST"]),
    Route("/v1/checkout/{checkout_id}/cancel", checkout.post_cancel, methods=["POST"]),
    Route("/v1/checkout/{checkout_id}/events", checkout_events.get_events, methods=["GET"]),
    Route("/c/{checkout_id}", page.get_page, methods=["GET"]),
    Route("/c/{checkout_id}/select", page.post_select, methods=["POST"]),
    Route("/c/{checkout_id}/cancel", page.post_cancel_form, methods=["POST"]),
    Route("/c/{checkout_id}/return", page.get_return, methods=["GET", "POST"]),
    Route("/c/{checkout_id}/receipt", page.get_receipt, methods=["GET"]),
    Route("/c/{checkout_id}/qr.svg", codes.get_qr, methods=["GET"]),
    Route("/c/{checkout_id}/wallet.svg", codes.get_wallet_qr, methods=["GET"]),
    Route("/c/wallet/open/{code}", codes.get_open, methods=["GET"]),
    Route("/c/static/pictures/{name}.webp", pictures.get_picture, methods=["GET"]),
    Route("/c/static/flags/{name}", static_files.get_flag, methods=["GET"]),
    Route("/c/static/{mark}/{name}", static_files.get_static_file, methods=["GET"]),
    Route("/sdk/{name}", sdk_files.get_sdk_file, methods=["GET"]),
    Route("/v1/countries", public.countries, methods=["GET"]),
    Route("/v1/chains/{slug}", onchain.get_chain, methods=["GET"]),
    Route("/v1/onchain/sessions/{session_id}", onchain.get_session, methods=["GET"]),
    Route(
        "/v1/onchain/sessions/{session_id}/transactions",
        onchain.post_transaction,
        methods=["POST"],
    ),
    Route("/v1/onramp/orders", public.onramp_order, methods=["POST"]),
    Route("/healthz", health.healthz, methods=["GET"]),
    Route("/readyz", health.readyz, methods=["GET"]),
    Route("/openapi.yaml", pages.openapi_yaml, methods=["GET"]),
    Route("/docs", pages.get_docs_index, methods=["GET"]),
    Route("/docs/{name}", pages.get_docs_page, methods=["GET"]),
]

# On the operator's own port, which only the operator must reach.
OPERATOR_ROUTES: list[BaseRoute] = [
    Route("/metrics", operator.metrics, methods=["GET"]),
    Route("/healthz", health.healthz, methods=["GET"]),
    Route("/readyz", health.readyz, methods=["GET"]),
    Route("/operator/payments/{payment_id}", operator.get_payment_details, methods=["GET"]),
    Route("/operator/webhooks", operator.list_webhooks, methods=["GET"]),
    Route("/operator/webhooks/{event_id}/replay", operator.replay_webhook, methods=["POST"]),
    Route("/operator/{subject}/{verb}", operator.run_operation_route, methods=["GET", "POST"]),
    *CONSOLE_ROUTES,
]
