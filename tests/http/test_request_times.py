"""The request histogram uses route templates as labels, regardless of the requests."""

import pytest
from prometheus_client import REGISTRY

from payintent.http.middleware import REQUEST_DURATION
from tests.support.world import Api


def answered(route: str, method: str, status: int) -> float:
    labels = {"route": route, "method": method, "status": str(status)}
    return REGISTRY.get_sample_value("payintent_http_request_seconds_count", labels) or 0


async def test_a_request_is_counted_under_its_routes_template_its_method_and_its_status(
    api: Api,
) -> None:
    route = "/v1/payments/{payment_id}"
    before = [answered(route, "GET", 200), answered(route, "GET", 404)]
    created = await api.create()
    for payment_id in (created.json["id"], "pay_" + "0" * 22, "pay_" + "1" * 22):
        await api.get(payment_id)
    after = [answered(route, "GET", 200), answered(route, "GET", 404)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 2]


@pytest.mark.parametrize(("method", "label"), [("GET", "GET"), ("PROPFIND", "other")])
async def test_what_clients_make_up_makes_no_series(api: Api, method: str, label: str) -> None:
    await api.send(method, "/made/up/0")
    series = len(next(iter(REQUEST_DURATION.collect())).samples)
    before = answered("none", label, 404)
    for number in range(1, 4):
        await api.send(method, f"/made/up/{number}")
    assert answered("none", label, 404) == before + 3
    assert len(next(iter(REQUEST_DURATION.collect())).samples) == series
