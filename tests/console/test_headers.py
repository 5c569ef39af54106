"""The headers of the console forbid caching, framing and foreign scripts."""

import pytest
from starlette.routing import Route

from payintent.console.routes import CONSOLE_ROUTES
from payintent.service import Service
from tests.console.operator_browser import Visitor
from tests.support.operation_examples import Stage
from tests.support.world import Answer, Api

_ROUTES = [route for route in CONSOLE_ROUTES if isinstance(route, Route)]
_OPEN = "/static/"  # public files that can be cached
_STREAM = "/today/events"


@pytest.fixture
def operated(production: Service) -> Service:
    return production


def _list_paths(stage: Stage) -> dict[str, str]:
    """Return a URL for each route with GET."""
    ids = {
        "payment_id": stage.known["payment"],
        "case_id": stage.known["case"],
        "refund_id": stage.known["refund"],
        "event_id": stage.known["event"],
        "merchant_id": stage.known["merchant"],
        "approval_id": stage.known["approval"],
        "extension": "csv",
        "subject": "payment",
        "verb": "list",
    }
    return {
        route.path: route.path.format_map(ids)
        for route in _ROUTES
        if "GET" in (route.methods or ()) and not route.path.startswith(_OPEN)
    }


async def test_pages_cannot_be_cached_or_framed_and_run_only_our_scripts(
    operator: Api, stage: Stage
) -> None:
    visitor, stranger = Visitor(operator), Visitor(operator)
    await visitor.sign_in(stage.tokens["Ada"])
    paths = _list_paths(stage)
    assert len(paths) > 20
    problems: dict[str, list[str]] = {}
    for route, path in paths.items():
        answers = [await stranger.get(path)]
        if route != _STREAM:
            answers.append(await visitor.get(path))
        for answer in answers:
            if missing := _find_missing_headers(answer):
                problems[f"{route} {answer.status}"] = missing
    assert problems == {}


def _find_missing_headers(answer: Answer) -> list[str]:
    headers = answer.headers
    problems = [] if headers.getall("Cache-Control", []) == ["no-store"] else ["Cache-Control"]
    if headers.get("Content-Type", "").startswith("text/html"):
        policy = headers.get("Content-Security-Policy", "")
        problems += [
            directive
            for directive in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'")
            if directive not in policy
        ]
        problems += [word for word in ("unsafe", "*") if word in policy]
    problems += [] if headers.get("X-Content-Type-Options") == "nosniff" else ["nosniff"]
    problems += [] if headers.get("Referrer-Policy") == "same-origin" else ["Referrer-Policy"]
    return problems
