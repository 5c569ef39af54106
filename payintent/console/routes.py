"""The routes of the console."""

from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.routing import Route

from payintent.console import (
    approvals,
    audit,
    cases,
    gateways,
    merchants,
    operation_pages,
    payments,
    sign_in,
    today,
    webhooks,
)
from payintent.console.access import OperatorVisit, console_page, operator_page
from payintent.console.oidc import sign_in as identity_sign_in
from payintent.console.rendering import CONSOLE_FILES
from payintent.http.application import Handler


def _open_page(path: str, handler: Handler, method: str = "GET") -> Route:
    return Route(path, console_page(handler), methods=[method])


def _page(
    path: str, handler: Callable[[OperatorVisit], Awaitable[Response]], method: str = "GET"
) -> Route:
    return Route(path, operator_page(handler), methods=[method])


CONSOLE_ROUTES: list[Route] = [
    _page("/", today.get_today),
    _page("/today/figures", today.get_today_figures),
    _page("/today/events", today.get_today_events),
    _page("/gateways", gateways.get_gateways),
    _page("/chains", gateways.get_chains),
    _open_page("/sign-in", sign_in.get_sign_in),
    _open_page("/sign-in", sign_in.post_sign_in, "POST"),
    _open_page("/sign-in/oidc", identity_sign_in.get_oidc_sign_in),
    _open_page("/sign-in/oidc/callback", identity_sign_in.get_oidc_callback),
    _page("/sign-out", sign_in.post_sign_out, "POST"),
    _page("/sessions", sign_in.get_sessions),
    _page("/sessions/{session_id}/end", sign_in.post_end_session, "POST"),
    _page("/payments", payments.get_payments),
    _page("/payments/{payment_id}", payments.get_payment),
    _page("/cases", cases.get_cases),
    _page("/cases/{case_id}", cases.get_case_page),
    _page("/refunds", cases.get_refunds),
    _page("/refunds/{refund_id}", cases.get_refund_page),
    _page("/disputes", cases.get_disputes),
    _page("/webhooks", webhooks.get_webhooks),
    _page("/webhooks/events", webhooks.get_webhook_events),
    _page("/webhooks/events/{event_id}", webhooks.get_webhook_event),
    _page("/merchants", merchants.get_merchants),
    _page("/merchants/{merchant_id}", merchants.get_merchant),
    _page("/approvals", approvals.get_approvals),
    _page("/approvals/{approval_id}", approvals.get_approval),
    _page("/approvals/{approval_id}/{decision}", approvals.post_decision, "POST"),
    _page("/audit", audit.get_audit),
    _page("/audit/export.{extension}", audit.get_audit_export),
    _page("/operations", operation_pages.get_operations),
    _page("/operations/{subject}/{verb}", operation_pages.get_operation),
    _page("/operations/{subject}/{verb}", operation_pages.post_operation, "POST"),
    Route("/static/{mark}/{name}", CONSOLE_FILES.get, methods=["GET"]),
]
