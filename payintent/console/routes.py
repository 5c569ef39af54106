"""The routes of the console."""

from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.routing import Route

from payintent.console import (
    approvals,
    audit,
    cases,
    exports,
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
from payintent.console.rendering import CONSOLE_FILES, LIST_PATHS
from payintent.http.application import Handler


def _make_open_route(path: str, handler: Handler, method: str = "GET") -> Route:
    return Route(path, console_page(handler), methods=[method])


def _make_page_route(
    path: str, handler: Callable[[OperatorVisit], Awaitable[Response]], method: str = "GET"
) -> Route:
    return Route(path, operator_page(handler), methods=[method])


CONSOLE_ROUTES: list[Route] = [
    _make_page_route("/", today.get_today),
    _make_page_route("/today/figures", today.get_today_figures),
    _make_page_route("/today/events", today.get_today_events),
    _make_page_route("/gateways", gateways.get_gateways),
    _make_page_route("/chains", gateways.get_chains),
    _make_open_route("/sign-in", sign_in.get_sign_in),
    _make_open_route("/sign-in", sign_in.post_sign_in, "POST"),
    _make_open_route("/sign-in/oidc", identity_sign_in.get_oidc_sign_in),
    _make_open_route("/sign-in/oidc/callback", identity_sign_in.get_oidc_callback),
    _make_page_route("/sign-out", sign_in.post_sign_out, "POST"),
    _make_page_route("/sessions", sign_in.get_sessions),
    _make_page_route("/sessions/{session_id}/end", sign_in.post_end_session, "POST"),
    *(
        _make_page_route(f"{path}/export.{{extension}}", exports.make_export_page(name))
        for name, path in LIST_PATHS.items()
    ),
    _make_page_route("/payments", payments.get_payments),
    _make_page_route("/payments/{payment_id}", payments.get_payment),
    _make_page_route("/cases", cases.get_cases),
    _make_page_route("/cases/{case_id}", cases.get_case_page),
    _make_page_route("/refunds", cases.get_refunds),
    _make_page_route("/refunds/{refund_id}", cases.get_refund_page),
    _make_page_route("/disputes", cases.get_disputes),
    _make_page_route("/webhooks", webhooks.get_webhooks),
    _make_page_route("/webhooks/events", webhooks.get_webhook_events),
    _make_page_route("/webhooks/events/{event_id}", webhooks.get_webhook_event),
    _make_page_route("/merchants", merchants.get_merchants),
    _make_page_route("/merchants/{merchant_id}", merchants.get_merchant),
    _make_page_route("/approvals", approvals.get_approvals),
    _make_page_route("/approvals/{approval_id}", approvals.get_approval),
    _make_page_route("/approvals/{approval_id}/{decision}", approvals.post_decision, "POST"),
    _make_page_route("/audit", audit.get_audit),
    _make_page_route("/audit/export.{extension}", audit.get_audit_export),
    _make_page_route("/operations", operation_pages.get_operations),
    _make_page_route("/operations/{subject}/{verb}", operation_pages.get_operation),
    _make_page_route("/operations/{subject}/{verb}", operation_pages.post_operation, "POST"),
    Route("/static/{mark}/{name}", CONSOLE_FILES.get, methods=["GET"]),
]
