"""The routes of the merchant portal."""

from starlette.routing import Route

from payintent.http.application import Handler
from payintent.portal import (
    exports,
    keys,
    lists,
    overview,
    payment_links,
    payments,
    settings,
    sides,
    sign_in,
)
from payintent.portal.visits import PORTAL_FILES


def _get(path: str, handler: Handler) -> Route:
    return Route(path, handler, methods=["GET"])


def _post(path: str, handler: Handler) -> Route:
    return Route(path, handler, methods=["POST"])


#: Served on the public port. All routes except the sign-in routes require a session. The browser
#: shows the URL of a rejected form, so this URL can also be opened.
PORTAL_ROUTES: list[Route] = [
    _get("/merchant", sign_in.get_portal),
    _get("/merchant/static/{mark}/{name}", PORTAL_FILES.get),
    _get("/merchant/sign-in", sign_in.get_portal_sign_in),
    _post("/merchant/sign-in", sign_in.post_portal_sign_in),
    _get("/merchant/sign-in/options", sign_in.get_portal_sign_in_options),
    _get("/merchant/link/{token}", sign_in.get_link),
    _post("/merchant/link/{token}", sign_in.post_link),
    _post("/merchant/sign-out", sign_in.post_portal_sign_out),
    _post("/merchant/side", sides.post_side),
    _get("/merchant/access", sign_in.get_access),
    _get("/merchant/passkeys/options", sign_in.get_passkey_options),
    _get("/merchant/passkeys", sign_in.get_access),
    _post("/merchant/passkeys", sign_in.post_passkey),
    _post("/merchant/passkeys/{passkey_id}/remove", sign_in.post_remove_passkey),
    _get("/merchant/overview", overview.get_overview),
    _get("/merchant/payments", payments.get_portal_payments),
    _get("/merchant/payments/export.csv", exports.get_payments_export),
    _get("/merchant/payments/{payment_id}", payments.get_portal_payment),
    _get("/merchant/payments/{payment_id}/refunds", payments.get_portal_payment),
    _post("/merchant/payments/{payment_id}/refunds", payments.post_refund_form),
    _get("/merchant/payment-links", payment_links.get_payment_links),
    _post("/merchant/payment-links", payment_links.post_payment_link),
    _get("/merchant/payment-links/export.csv", exports.get_payment_links_export),
    _get("/merchant/payment-links/{link_id}", payment_links.get_payment_link),
    _get("/merchant/payment-links/{link_id}/mail", payment_links.get_payment_link),
    _post("/merchant/payment-links/{link_id}/mail", payment_links.post_payment_link_mail),
    _post(
        "/merchant/payment-links/{link_id}/deactivate",
        payment_links.post_deactivate_payment_link,
    ),
    _get("/merchant/refunds", lists.get_portal_refunds),
    _get("/merchant/refunds/export.csv", exports.get_refunds_export),
    _get("/merchant/cases", lists.get_portal_cases),
    _get("/merchant/cases/export.csv", exports.get_cases_export),
    _get("/merchant/statements", lists.get_portal_statements),
    _get("/merchant/statements/{statement_id}", lists.get_portal_statement),
    _get("/merchant/statements/{statement_id}/lines.csv", lists.get_statement_csv),
    _get("/merchant/statements/{statement_id}/statement.pdf", lists.get_statement_pdf),
    _get("/merchant/events", lists.get_portal_events),
    _get("/merchant/events/export.csv", exports.get_events_export),
    _get("/merchant/events/{event_id}", lists.get_event),
    _post("/merchant/events/{event_id}/replay", lists.post_replay),
    _get("/merchant/settings", settings.get_settings),
    _get("/merchant/settings/save", settings.get_settings),
    _post("/merchant/settings/save", settings.post_settings),
    _get("/merchant/settings/secret", settings.get_settings),
    _post("/merchant/settings/secret", settings.post_rotate_secret),
    _get("/merchant/settings/test-event", settings.get_settings),
    _post("/merchant/settings/test-event", settings.post_test_event),
    _get("/merchant/keys", keys.get_keys),
    _post("/merchant/keys", keys.post_key),
    _post("/merchant/keys/{public_id}/revoke", keys.post_revoke_key),
    _get("/merchant/catalog", lists.get_catalog_preview),
    _get("/merchant/calls", lists.get_calls),
    _get("/merchant/calls/export.csv", exports.get_calls_export),
]
