"""The request histogram uses route templates as labels, regardless of the requests."""

import pytest
from prometheus_client import REGISTRY

from payintent.http.middleware import REQUEST_DURATION
from tests.support.world import Api


def count_requests(route: str, method: str, status: int) -> float:
    labels = {"route": route, "method": method, "status": str(status)}
    return REGISTRY.get_sample_value("payintent_http_request_seconds_count", labels) or 0


async def test_requests_are_counted_by_route_template_method_and_status(
    api: Api,
) -> None:
    route = "/v1/payments/{payment_id}"
    before = [count_requests(route, "GET", 200), count_requests(route, "GET", 404)]
    created = await api.create()
    for payment_id in (created.json["id"], "pay_" + "0" * 22, "pay_" + "1" * 22):
        await api.get(payment_id)
    after = [count_requests(route, "GET", 200), count_requests(route, "GET", 404)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 2]


@pytest.mark.parametrize(("method", "label"), [("GET", "GET"), ("PROPFIND", "other")])
async def test_unknown_paths_and_methods_do_not_create_new_series(
    api: Api, method: str, label: str
) -> None:
    await api.send(method, "/made/up/0")
    series = len(next(iter(REQUEST_DURATION.collect())).samples)
    before = count_requests("none", label, 404)
    for number in range(1, 4):
        await api.send(method, f"/made/up/{number}")
    assert count_requests("none", label, 404) == before + 3
    assert len(next(iter(REQUEST_DURATION.collect())).samples) == series
