"""Traces: disabled, sampled, not installed, and with an unreachable collector."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import UUID, uuid4

import pytest
import structlog

from payintent.payments.cancel import cancel_by_buyer
from payintent.runtime import log, tracing
from payintent.runtime.id_generator import IdGenerator
from payintent.runtime.settings import Settings
from payintent.runtime.tracing import Span, TracingUnavailableError, start_tracing
from tests.support.ports import free_port
from tests.support.world import Api, World

pytestmark = pytest.mark.full

ReadLog = Callable[[], list[dict[str, object]]]


class _Sink:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[_Sink]:
    sink = _Sink()
    tracing.start(sink)
    yield sink
    tracing.stop()


@pytest.fixture
def read_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ReadLog]:
    # A cached logger would write to this test's stream in all later tests of the process.
    configure = structlog.configure
    never = {"cache_logger_on_first_use": False}
    monkeypatch.setattr(structlog, "configure", lambda **options: configure(**(options | never)))
    monkeypatch.setattr(log, "_levels", ["INFO"])
    log.load_logging.cache_clear()
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    log.load_logging.cache_clear()
    structlog.reset_defaults()


async def test_nothing_is_recorded_unless_tracing_was_started(api: Api) -> None:
    tracing.begin_request()
    tracing.follow_payment(uuid4())
    tracing.record("nothing", uuid4(), 0.0, {})
    tracing.end_request("nothing", 200, 0.0, {})
    assert log.trace_id.get() == ""
    assert tracing._request.get() is None
    assert (await api.create()).status == 201


async def test_importing_the_service_does_not_import_opentelemetry() -> None:
    code = "import sys, payintent.cli.serve_api, payintent.cli.work\n"
    code += "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert (await running.communicate())[0] == b"[]\n"


async def test_a_rolled_back_transaction_creates_no_span(world: World, sink: _Sink) -> None:
    service = world.service
    payment = await world.create()
    for divisor in (0, 1):
        with suppress(ZeroDivisionError):
            async with service.database.transaction() as tx:
                await cancel_by_buyer(tx, payment.id)
                assert sink.spans == []
                assert 1 / divisor
    assert [span.name for span in sink.spans] == ["payment CANCELLED"]
    assert sink.spans[0].trace_id == payment.id


async def test_a_request_for_a_payment_of_another_merchant_is_not_traced(
    api: Api, sink: _Sink
) -> None:
    created = await api.create()
    sink.spans.clear()
    other = await api.world.add_merchant()
    headers = {"Authorization": f"Bearer {other.api_key}"}
    refused = await api.send("GET", f"/v1/payments/{created.json['id']}", headers=headers)
    assert refused.status == 403
    assert sink.spans == []


async def test_a_replay_does_not_create_a_second_root_span(api: Api, sink: _Sink) -> None:
    key = str(uuid4())
    first = await api.create(key=key)
    again = await api.create(key=key)
    assert first.json["id"] == again.json["id"]
    root, replay = sink.spans
    assert (root.parent_id, replay.parent_id) == (None, root.span_id)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_all_processes_sample_the_same_share_of_payments(share: float) -> None:
    generator = IdGenerator()
    samples: list[set[UUID]] = []
    payments = [generator.new_id() for _ in range(400)]
    for _ in range(2):
        sink = _Sink()
        tracing.start(sink, share)
        for payment_id in payments:
            tracing.record("something", payment_id, 0.0, {})
        tracing.stop()
        samples.append({span.trace_id for span in sink.spans})
    assert samples[0] == samples[1]
    assert abs(len(samples[0]) - 400 * share) <= 100 * (share % 1 != 0)


def test_log_lines_about_a_payment_have_its_trace_id(sink: _Sink, read_log: ReadLog) -> None:
    payment_id = uuid4()
    tracing.follow_payment(payment_id)
    log.get_logger("test").info("something")
    log.trace_id.set("")
    log.get_logger("test").info("something_else")
    traced, other = read_log()
    assert traced["trace_id"] == payment_id.hex
    assert "trace_id" not in other


def test_a_process_without_the_extra_reports_the_missing_package(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    endpoint = settings.model_copy(update={"otlp_endpoint": "http://127.0.0.1:4318"})
    with pytest.raises(TracingUnavailableError, match=r"needs the payintent\[otel\] extra"):
        start_tracing(endpoint, "payintent-api")
    assert not tracing.is_enabled()


async def test_an_unreachable_collector_causes_a_log_line_and_no_failed_request(
    settings: Settings, read_log: ReadLog
) -> None:
    away = settings.model_copy(update={"otlp_endpoint": f"http://127.0.0.1:{free_port()}"})
    start_tracing(away, "payintent-api")
    tracing.record("something", uuid4(), 0.0, {})
    await asyncio.to_thread(tracing.stop)
    lines = read_log()
    assert {line["event"] for line in lines} == {"traces_lost"}
