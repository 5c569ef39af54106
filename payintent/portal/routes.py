"""The routes of the merchant portal."""

from starlette.routing import Route

from payintent.portal import access, lists, payments, sign_in
from payintent.portal import lists as statements
from payintent.portal.rendering import PORTAL_FILES

#: On the public port. All routes except those for signing in require a session.
PORTAL_ROUTES: list[Route] = [
    Route("/merchant", sign_in.get_portal, methods=["GET"]),
    Route("/merchant/static/{mark}/{name}", PORTAL_FILES.get, methods=["GET"]),
    Route("/merchant/sign-in", sign_in.get_portal_sign_in, methods=["GET"]),
    Route("/merchant/sign-in", sign_in.post_portal_sign_in, methods=["POST"]),
    Route("/merchant/sign-in/options", sign_in.get_portal_sign_in_options, methods=["GET"]),
    Route("/merchant/link/{token}", sign_in.get_link, methods=["GET"]),
    Route("/merchant/link/{token}", sign_in.post_link, methods=["POST"]),
    Route("/merchant/sign-out", sign_in.post_portal_sign_out, methods=["POST"]),
    Route("/merchant/access", access.get_access, methods=["GET"]),
    Route("/merchant/passkeys/options", access.get_passkey_options, methods=["GET"]),
    Route("/merchant/passkeys", access.post_passkey, methods=["POST"]),
    Route("/merchant/passkeys/{passkey_id}/remove", access.post_remove_passkey, methods=["POST"]),
    Route("/merchant/payments", payments.get_portal_payments, methods=["GET"]),
    Route("/merchant/payments/{payment_id}", payments.get_portal_payment_story, methods=["GET"]),
    Route("/merchant/payments/{payment_id}/refunds", payments.post_refund_form, methods=["POST"]),
    Route("/merchant/refunds", lists.get_portal_refunds, methods=["GET"]),
    Route("/merchant/cases", lists.get_portal_cases, methods=["GET"]),
    Route("/merchant/statements", statements.get_portal_statements, methods=["GET"]),
    Route("/merchant/statements/{statement_id}", statements.get_portal_statement, methods=["GET"]),
    Route(
        "/merchant/statements/{statement_id}/lines.csv",
        statements.get_statement_csv,
        methods=["GET"],
    ),
    Route(
        "/merchant/statements/{statement_id}/statement.pdf",
        statements.get_statement_pdf,
        methods=["GET"],
    ),
    Route("/merchant/events", lists.get_portal_events, methods=["GET"]),
    Route("/merchant/events/{event_id}", lists.get_event, methods=["GET"]),
    Route("/merchant/events/{event_id}/replay", lists.post_replay, methods=["POST"]),
    Route("/merchant/keys", lists.get_keys, methods=["GET"]),
    Route("/merchant/keys/{public_id}/revoke", lists.post_revoke_key, methods=["POST"]),
    Route("/merchant/catalog", lists.get_catalog_preview, methods=["GET"]),
    Route("/merchant/calls", lists.get_calls, methods=["GET"]),
]
