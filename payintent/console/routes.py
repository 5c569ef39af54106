"""Every route of the console on one screen."""

from starlette.routing import BaseRoute, Route

from payintent.console import approvals, audit, home, operations, sign_in, static_files
from payintent.console.access import Handler, console_page


def _page(path: str, handler: Handler, method: str = "GET") -> Route:
    return Route(path, console_page(handler), methods=[method])


CONSOLE_ROUTES: list[BaseRoute] = [
    _page("/", home.get_home),
    _page("/sign-in", sign_in.get_sign_in),
    _page("/sign-in", sign_in.post_sign_in, "POST"),
    _page("/sign-out", sign_in.post_sign_out, "POST"),
    _page("/sessions", sign_in.get_sessions),
    _page("/sessions/{session_id}/end", sign_in.post_end_session, "POST"),
    _page("/approvals", approvals.get_approvals),
    _page("/approvals/{approval_id}", approvals.get_approval),
    _page("/approvals/{approval_id}/{decision}", approvals.post_decision, "POST"),
    _page("/audit", audit.get_audit),
    _page("/audit/export.{form}", audit.get_audit_export),
    _page("/operations", operations.get_operations),
    _page("/operations/{subject}/{verb}", operations.get_operation),
    _page("/operations/{subject}/{verb}", operations.post_operation, "POST"),
    Route("/static/{mark}/{name}", static_files.get_console_file, methods=["GET"]),
]
