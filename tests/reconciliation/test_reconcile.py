"""A provider's file is compared with our data. Each difference is reported and opens a case."""

import asyncio
import hashlib
import json
import threading
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from payintent.accounting.ledger_operations import CheckLedger
from payintent.accounting.payouts_operations import ListGatewayPayouts
from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.port import GatewayRefundState, RefundReport, VerifiedCallback
from payintent.gateways.settlement_reports import ProviderFileLine
from payintent.merchants.access_operations import IssueApiKey
from payintent.operators.operations import ListAuditEntries
from payintent.operators.submit import describe
from payintent.payments.model import Payment
from payintent.reconciliation import compare as difference_cases
from payintent.reconciliation.compare import ReconciliationInput, ReconciliationResult
from payintent.reconciliation.file import (
    HEADER,
    InvalidProviderFileError,
    ProviderFile,
    open_provider_file,
)
from payintent.reconciliation.operations import CompareProviderFile, ReconcileProviderFile
from payintent.refunds import store as refund_store
from payintent.refunds.resolve_case import ResolveCase
from payintent.refunds.settle import settle_refund
from tests.support.contracts import offer_tokens
from tests.support.fakes import captured
from tests.support.operation_examples import add_refunds_for_approval
from tests.support.world import ACTOR, World

_HEADER = ",".join(HEADER)
_LONG_AGO, _FAR_AWAY = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_AT = "2026-11-21T08:00:00Z"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of lines below the header."""

    def write_file(*lines: str, header: str = _HEADER, name: str = "file.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join([header, *lines, ""]))
        return path

    return write_file


async def _pay(
    world: World, reference: str, amount_minor: int = 159_000, currency: str = "THB"
) -> Payment:
    payment = await world.create()
    session = (await world.select(payment)).session
    return await world.report(
        payment, session.id, captured(amount_minor, currency, reference=reference)
    )


async def _refund(world: World, reference: str | None, state: GatewayRefundState) -> list[UUID]:
    """Report two otherwise identical refunds, the first with this reference."""
    _, *refund_ids = await add_refunds_for_approval(world)
    await world.rows("UPDATE refund SET step = 'sent', sent_at = clock()")
    async with world.database.transaction() as tx:
        for number, refund_id in enumerate(refund_ids):
            report = RefundReport(state=state, reference=None if number else reference)
            await settle_refund(tx, refund_id, report)
    return refund_ids


def _comparison(path: Path, **options: Any) -> ReconciliationInput:
    """Compare with all stored data if no period is given."""
    fields = {"provider": "fake", "since": _LONG_AGO, "until": _FAR_AWAY} | options
    return ReconciliationInput(file=open_provider_file(path), **fields)


async def _compare(world: World, path: Path, **options: Any) -> ReconciliationResult:
    return await world.perform(CompareProviderFile(comparison=_comparison(path, **options)))


async def _reconcile(world: World, path: Path, **options: Any) -> ReconciliationResult:
    return await world.perform(ReconcileProviderFile(comparison=_comparison(path, **options)))


def _counts(result: ReconciliationResult) -> dict[str, tuple[int, ...]]:
    return {
        tally.type: (tally.lines, tally.matched, tally.missing, tally.extra, tally.different)
        for tally in result.tallies
    }


async def test_matching_records_are_not_differences(world: World, write: Write) -> None:
    await _pay(world, "cap-a")
    [first, second] = await _refund(world, "back-1", GatewayRefundState.DONE)
    [paid] = await world.rows("SELECT reference FROM capture WHERE reference <> 'cap-a'")
    path = write(
        f"payment,cap-a,,1590.00,THB,{_AT}",
        "",
        f'"payment",{paid["reference"]},sess_x,1590,THB,2026-11-21 09:00:00.123456789+01:00',
        f"refund,back-1,,90.0,THB,{_AT}",
        f"refund,theirs,{ids.format_id(ids.REFUND, second)},90.00,THB,{_AT}",
    )
    result = await _compare(world, path)
    assert (result.difference_count, result.differences) == (0, [])
    assert _counts(result) == {"payment": (2, 2, 0, 0, 0), "refund": (2, 2, 0, 0, 0)}
    assert first != second


async def test_a_refund_that_the_gateway_made_twice_is_a_difference(
    world: World, write: Write
) -> None:
    [first, _] = await _refund(world, "back-1", GatewayRefundState.DONE)
    refund_id = ids.format_id(ids.REFUND, first)
    path = write(
        f"refund,back-0,{refund_id},90.00,THB,{_AT}", f"refund,back-1,{refund_id},90.00,THB,{_AT}"
    )
    result = await _compare(world, path, until=datetime(2000, 1, 2, tzinfo=UTC))
    assert _counts(result)["refund"] == (2, 1, 0, 1, 0)
    [difference] = result.differences
    assert "refund back-0: extra, 90.00 THB" in difference
    assert difference.endswith("ours is SUCCEEDED")


async def test_each_difference_is_reported_and_opens_one_case(world: World, write: Write) -> None:
    for reference in ("cap-less", "cap-yen", "cap-lost"):
        await _pay(world, reference)
    refund_ids = await _refund(world, "back-1", GatewayRefundState.DONE)
    [paid] = await world.rows("SELECT reference FROM capture WHERE reference NOT LIKE 'cap-_%s%'"
                              " AND reference <> 'cap-yen'")  # fmt: skip
    path = write(
        f"payment,{paid['reference']},,1590.00,THB,{_AT}",
        f"payment,cap-less,,12.00,THB,{_AT}",
        f"payment,cap-yen,,1590,JPY,{_AT}",
        f"payment,cap-new,,12.5,USD,{_AT}",
        f"refund,back-1,,91.005,THB,{_AT}",
        f"refund,back-new,,7,JPY,{_AT}",
    )
    result = await _compare(world, path)
    assert _counts(result) == {"payment": (4, 1, 1, 1, 2), "refund": (2, 0, 1, 1, 1)}
    assert await world.perform(ListCases(kind=CaseKind.RECONCILIATION)) == []
    applied = await _reconcile(world, path)
    assert (applied.opened, applied.differences) == (7, result.differences)
    cases = await world.perform(ListCases(kind=CaseKind.RECONCILIATION))
    assert sorted(case.subject for case in cases) == sorted(result.differences)
    missing = [difference for difference in result.differences if "missing" in difference]
    assert [item.split(" at ")[0] for item in missing] == [
        "fake payment cap-lost: missing, 1590.00 THB",
        f"fake refund {refund_ids[1]}: missing, 90.00 THB",
    ]
    assert [difference for difference in result.differences if "missing" not in difference] == [
        "fake payment cap-less: different, 12.00 THB there, 1590.00 THB here",
        "fake payment cap-yen: different, 1590 JPY there, 1590.00 THB here",
        "fake payment cap-new: extra, 12.50 USD at 2026-11-21T08:00:00.000Z",
        "fake refund back-1: different, 91.005 THB there, 90.00 THB here",
        "fake refund back-new: extra, 7 JPY at 2026-11-21T08:00:00.000Z",
    ]


async def test_every_currency_is_compared_in_its_own_minor_unit(world: World, write: Write) -> None:
    for reference, amount_minor, currency in (
        ("cap-same", 1_250, "SGD"),
        ("cap-less", 1_250, "SGD"),
        ("cap-lost", 12_345, "KWD"),
        ("cap-won", 1_250, "KRW"),
    ):
        await _pay(world, reference, amount_minor, currency)
    path = write(
        f"payment,cap-same,,12.50,SGD,{_AT}",
        f"payment,cap-less,,1250,SGD,{_AT}",
        f"payment,cap-won,,1250,KRW,{_AT}",
        f"payment,cap-new,,7.5,EUR,{_AT}",
    )
    result = await _compare(world, path)
    assert [subject.split(" at ")[0] for subject in result.differences] == [
        "fake payment cap-less: different, 1250.00 SGD there, 12.50 SGD here",
        "fake payment cap-new: extra, 7.50 EUR",
        "fake payment cap-lost: missing, 12.345 KWD",
    ]
    assert _counts(result)["payment"] == (4, 2, 1, 1, 1)


async def test_a_case_references_the_known_payment_refund_and_merchant(
    world: World, write: Write
) -> None:
    payment = await _pay(world, "cap-1")
    [refund, _] = await _refund(world, "back-1", GatewayRefundState.DONE)
    await _reconcile(world, write(f"refund,back-1,,1.00,THB,{_AT}"))
    rows = await world.rows("SELECT * FROM money_case WHERE kind = 'RECONCILIATION'")
    cases_by_name = {row["subject"].split(":")[0]: row for row in rows}
    [capture] = await world.rows("SELECT id FROM capture WHERE reference = 'cap-1'")
    lost = cases_by_name["fake payment cap-1"]
    assert (lost["capture_id"], lost["payment_id"]) == (capture["id"], payment.id)
    assert (lost["merchant_id"], lost["status"]) == (world.merchant_id, "OPEN")
    assert cases_by_name["fake refund back-1"]["refund_id"] == refund
    assert cases_by_name["fake refund back-1"]["merchant_id"] == world.merchant_id
    cases = await world.perform(ListCases(kind=CaseKind.RECONCILIATION))
    assert ids.format_id(ids.REFUND, refund) in {item.refund_id for item in cases}


async def test_repeating_a_file_opens_no_case_even_if_a_case_was_closed(
    world: World, write: Write
) -> None:
    await _pay(world, "cap-1")
    path = write(f"payment,cap-2,,1.00,THB,{_AT}", f"refund,back-1,,2.00,THB,{_AT}")
    assert (await _reconcile(world, path)).opened == 3
    first, *_ = await world.perform(ListCases())
    await world.perform(ResolveCase(case_id=first.id, resolution="dismiss", note="theirs"))
    repeated = await _reconcile(world, path)
    assert (repeated.opened, repeated.difference_count) == (0, 3)
    later = write(
        f"payment,cap-2,,1.0,THB,{_AT.replace('Z', '+00:00')}",
        f"refund,back-1,,2,THB,{_AT}",
        f"payment,cap-3,,1.00,THB,{_AT}",
    )
    assert (await _reconcile(world, later)).opened == 1


async def test_only_applied_files_appear_in_the_audit_log_and_their_lines_do_not(
    world: World, write: Write
) -> None:
    path = write(f"payment,cap-secret,,1.00,THB,{_AT}")
    await _compare(world, path)
    assert await world.perform(ListAuditEntries(of="reconcile")) == []
    await _reconcile(world, path)
    [line] = await world.perform(ListAuditEntries(of="reconcile"))
    details = json.dumps(line.details)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in details
    assert line.details["opened"] == 1
    assert line.details["tallies"][0]["extra"] == 1
    assert "cap-secret" not in details
    assert str(path.parent) not in details


async def test_a_session_that_the_file_reports_as_paid_is_inquired_about_immediately(
    world: World, write: Write
) -> None:
    open_session = (await world.select(await world.create())).session
    paid_payment = await _pay(world, "cap-1")
    assert paid_payment.session_id is not None
    path = write(
        f"payment,cap-1,{ids.format_id(ids.SESSION, paid_payment.session_id)},1590.00,THB,{_AT}",
        f"payment,cap-2,{ids.format_id(ids.SESSION, open_session.id)},1590.00,THB,{_AT}",
        f"payment,cap-3,{paid_payment.session_id},1590.00,THB,{_AT}",
        f"payment,cap-5,order 77,1590.00,THB,{_AT}",
    )
    due = "SELECT id FROM session WHERE inquire_at <= clock()"
    assert (await _compare(world, path, account_id=world.account_id)).inquiries == 0
    assert await world.rows(due) == []
    result = await _reconcile(world, path, account_id=world.account_id)
    assert (result.inquiries, result.opened) == (1, 3)
    assert [row["id"] for row in await world.rows(due)] == [open_session.id]
    rows = await world.rows(
        "SELECT session_id, payment_id, merchant_id FROM money_case ORDER BY id"
    )
    references = {row["session_id"]: (row["payment_id"], row["merchant_id"]) for row in rows}
    assert references == {
        open_session.id: (open_session.payment_id, world.merchant_id),
        paid_payment.session_id: (paid_payment.id, world.merchant_id),
        None: (None, None),
    }


async def test_a_session_of_another_account_is_not_matched(world: World, write: Write) -> None:
    session = (await world.select(await world.create())).session
    other_account_id = await world.add_account("http://other.test", signing_secret="x")
    path = write(f"payment,cap-1,{session.id},1590.00,THB,{_AT}")
    result = await _reconcile(world, path, account_id=other_account_id)
    assert (result.inquiries, result.opened) == (0, 1)
    assert await world.rows("SELECT FROM money_case WHERE session_id IS NULL")


async def test_a_pending_refund_in_the_file_is_inquired_about_immediately(
    world: World, write: Write
) -> None:
    [refund, _] = await _refund(world, "back-1", GatewayRefundState.PENDING)
    await refund_store.schedule_inquiry(world.database, refund, 3600, inquiries=1)
    [paid] = await world.rows("SELECT reference FROM capture")
    path = write(f"payment,{paid['reference']},,1590,THB,{_AT}", f"refund,back-1,,90,THB,{_AT}")
    result = await _reconcile(world, path)
    assert result.differences == [
        "fake refund back-1: extra, 90.00 THB at 2026-11-21T08:00:00.000Z, ours is PENDING"
    ]
    assert result.inquiries == 1
    assert await world.rows("SELECT FROM refund WHERE id = $1 AND next_at <= clock()", refund)


async def test_missing_records_are_searched_for_only_in_the_period_of_the_file(
    world: World, write: Write
) -> None:
    moments = [datetime(2026, 11, 21, 8, minute, tzinfo=UTC) for minute in (0, 4, 6, 30, 31)]
    for number, moment in enumerate(moments):
        await _pay(world, f"cap-{number}")
        await world.rows(
            "UPDATE capture SET captured_at = $2 WHERE reference = $1", f"cap-{number}", moment
        )
    path = write(
        "payment,cap-0,,1590.00,THB,2026-11-21T08:00:00Z",
        "payment,cap-3,,1590.00,THB,2026-11-21T08:30:00Z",
    )

    async def list_missing(**period: Any) -> list[str]:
        result = await _compare(world, path, **({"since": None, "until": None} | period))
        return [difference.split(":")[0].split()[-1] for difference in result.differences]

    # cap-1 was captured within the first minutes, so it may be in the file of the previous day.
    assert await list_missing() == ["cap-2"]
    assert await list_missing(since=moments[0]) == ["cap-1", "cap-2"]
    assert await list_missing(since=moments[0].replace(tzinfo=None)) == ["cap-1", "cap-2"]
    assert await list_missing(until=moments[4]) == ["cap-2", "cap-4"]
    # Lines of the file are matched regardless of the period.
    assert await list_missing(since=moments[4] + timedelta(days=1), until=_FAR_AWAY) == []


async def test_each_account_has_its_own_references(world: World, write: Write) -> None:
    other_account_id = await world.add_account("http://other.test", signing_secret="x")
    await _pay(world, "cap-1")
    path = write(f"payment,cap-1,,1590.00,THB,{_AT}")
    assert (await _compare(world, path, account_id=world.account_id)).difference_count == 0
    assert (await _compare(world, path)).difference_count == 0
    result = await _compare(world, path, account_id=other_account_id)
    assert _counts(result)["payment"] == (1, 0, 0, 1, 0)
    row = await world.rows("SELECT session_id, payment_id FROM capture")
    await world.rows(
        "INSERT INTO capture (id, account_id, reference, session_id, payment_id, currency, "
        "amount_minor, credited, captured_at) VALUES (gen_random_uuid(), $1, 'cap-1', $2, $3, "
        "'THB', 5, false, clock())",
        other_account_id,
        row[0]["session_id"],
        row[0]["payment_id"],
    )
    assert (await _compare(world, path)).difference_count == 0  # either capture matches


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("payment,a,,1.00,THB", "the line must have 6 columns, not 5"),
        ("payment,a,,1.00,THB,{at},", "the line must have 6 columns, not 7"),
        ("fee,a,,1.00,THB,{at}", "type must be payment, refund, dispute, dispute_reversal or"),
        ("payout,,,1.00,THB,{at}", "reference must have 1 to 200"),
        ("payout,a,,0.00,THB,{at}", "amount must be a plain decimal above zero"),
        ("payout,a,,-1.00,THB,{at}", "amount must be a plain decimal above zero"),
        ("payout,a,,1.001,THB,{at}", "amount of a payout in THB must have at most 2 decimals"),
        (
            "payout,a,,1.1,JPY,{at}",
            "a payout in JPY must have at most 0 decimals, not '1.1'",
        ),
        ("payout,a,,1.00,USDT,{at}", "must be in an ISO 4217 currency, not in 'USDT'"),
        ("payout,a,,1.00,TH1,{at}", "must be in an ISO 4217 currency, not in 'TH1'"),
        ("payment,,,1.00,THB,{at}", "reference must have 1 to 200"),
        ("payment,{long},,1.00,THB,{at}", "reference must have 1 to 200"),
        ("payment,a\x00,,1.00,THB,{at}", "reference must have 1 to 200"),
        ("payment,a,{long},1.00,THB,{at}", "our_reference must have at most 200"),
        ("payment,a,,-1.00,THB,{at}", "amount must be a plain decimal above zero"),
        ("payment,a,,0.00,THB,{at}", "amount must be a plain decimal above zero"),
        ("payment,a,,1e3,THB,{at}", "amount must be a plain decimal above zero"),
        ('payment,a,,"1,000",THB,{at}', "amount must be a plain decimal above zero"),
        ("payment,a,,NaN,THB,{at}", "amount must be a plain decimal above zero"),
        ("payment,a,,1.00,thb,{at}", "currency must be a code such as USD, not 'thb'"),
        ("payment,a,,1.00,THB,2026-11-21", "column at must be a time such as"),
        ("payment,a,,1.00,THB,2026-11-21T08:00:00", "column at must be a time such as"),
        ("payment,a,,1.00,THB,2026-13-21T08:00:00Z", "column at must be a time such as"),
        ("payment,a,,1.00,THB,0001-01-01T00:00:00+23:59", "column at must be a time such as"),
        ('payment,"a"b,,1.00,THB,{at}', "',' expected after '\"'"),
        (f"payment,{4_000 * 'x'},,1.00,THB,{{at}}", "the line is longer than 4000 characters"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(write: Write, line: str, problem: str) -> None:
    path = write(f"payment,fine,,1.00,THB,{_AT}", line.format(at=_AT, long=201 * "x"))
    with pytest.raises(InvalidProviderFileError) as error:
        list(open_provider_file(path).read())
    [message] = error.value.problems
    assert message.startswith("line 3: ")
    assert problem in message
    assert len(message) < 200


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("payment,a,,1.00,THB,{at}", "the line must have 7 columns, not 6"),
        (
            "payment,a,,1.00,THB,{at},0.10",
            "only a payout can have a fee, but this payment has '0.10'",
        ),
        ("refund,a,,1.00,THB,{at},0", "only a payout can have a fee, but this refund has '0'"),
        ("payout,a,,1.00,THB,{at},-0.10", "fee must be a plain decimal"),
        ("payout,a,,1.00,THB,{at},1%", "fee must be a plain decimal"),
        ("payout,a,,1.00,THB,{at},0.001", "fee of a payout in THB must have at most 2 decimals"),
    ],
)
def test_an_invalid_line_of_a_file_with_fees_is_reported(
    write: Write, line: str, problem: str
) -> None:
    valid_lines = (f"payment,fine,,1.00,THB,{_AT},", f"payout,fine,,1.000,THB,{_AT},0.10")
    path = write(*valid_lines, line.format(at=_AT), header=f"{_HEADER},fee")
    with pytest.raises(InvalidProviderFileError) as error:
        list(open_provider_file(path).read())
    [message] = error.value.problems
    assert message.startswith("line 4: ")
    assert problem in message


def test_only_the_first_of_many_invalid_lines_are_reported(write: Write) -> None:
    path = write(*[f"payment,a,,1,THB,{_AT}", *["x"] * 1_000])
    with pytest.raises(InvalidProviderFileError) as error:
        list(open_provider_file(path).read())
    problems = error.value.problems
    assert (len(problems), problems[0], problems[-1]) == (
        *(21, "line 3: the line must have 6 columns, not 1", "and 980 more"),
    )


def test_an_invalid_file_is_reported(write: Write, tmp_path: Path) -> None:
    header = (
        "line 1: the header must be type,reference,our_reference,amount,currency,at, "
        "optionally followed by fee"
    )
    cases = [
        (write(header=f"{_HEADER},fees", name="fees.csv"), header),
        (write(header="type,reference"), header),
        (write(header=_HEADER.replace(",", ";")), header),
        (tmp_path, f"'{tmp_path}'"[:40]),
        (tmp_path / "nothing.csv", "is not a file"),
    ]
    (tmp_path / "empty.csv").touch()
    cases.append((tmp_path / "empty.csv", header))
    (tmp_path / "latin.csv").write_bytes(f"{_HEADER}\npayment,".encode() + b"\xe9,,1,THB,x\n")
    cases.append((tmp_path / "latin.csv", "the file is not UTF-8"))
    for path, problem in cases:
        with pytest.raises(InvalidProviderFileError) as error:
            list(open_provider_file(path).read())
        assert problem in error.value.problems[0], path


def test_a_file_written_by_a_spreadsheet_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes(f"\ufeff{_HEADER}\r\npayment,é,,1.00,THB,{_AT}\r\n".encode())
    [line] = open_provider_file(path).read()
    assert isinstance(line, ProviderFileLine)
    assert line.at == datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert line.reference == "é"


def test_blank_lines_are_ignored_even_before_the_header(write: Write) -> None:
    blank = ["", "   ", ",,,,,", "\t"]
    lines = [_HEADER, *blank, f"payment,a,,1.00,THB,{_AT}", *blank, f"payment,b,,1.00,THB,{_AT}"]
    read = list(open_provider_file(write(*blank[1:], *lines, *blank, header="")).read())
    assert [line.reference for line in read if isinstance(line, ProviderFileLine)] == ["a", "b"]


async def test_a_file_with_a_duplicate_line_is_rejected_without_changes(
    world: World, write: Write
) -> None:
    path = write(
        f"payment,cap-1,,1.00,THB,{_AT}",
        f"refund,cap-1,,1.00,THB,{_AT}",
        f"payment,cap-1,,2.00,THB,{_AT}",
    )
    for perform in (_compare, _reconcile):
        with pytest.raises(InvalidProviderFileError) as error:
            await perform(world, path)
        assert error.value.problems == ["line 4: duplicate of line 2"]
    assert await world.perform(ListCases(status="ALL")) == []
    assert await world.perform(ListAuditEntries(of="reconcile")) == []


async def test_a_file_that_changes_during_the_read_is_refused(world: World, write: Write) -> None:
    comparison = _comparison(write(f"payment,cap-1,,1.00,THB,{_AT}"))
    write(f"payment,cap-1,,9.00,THB,{_AT}")
    with pytest.raises(InvalidProviderFileError, match="changed while it was being read"):
        await world.perform(ReconcileProviderFile(comparison=comparison))
    assert await world.perform(ListCases(status="ALL")) == []


async def test_an_unknown_account_or_missing_period_is_refused(world: World, write: Write) -> None:
    await offer_tokens(world)
    path = write(f"payment,cap-1,,1.00,THB,{_AT}")
    for options, message in (
        ({"provider": "nobody"}, "'nobody' has no account to compare a file with"),
        ({"provider": "gateway_contract"}, "has no account to compare a file with"),
        ({"account_id": 99}, "fake has no account 99"),
        ({"account_id": 2**64}, f"fake has no account {2**64}"),
    ):
        for perform in (_compare, _reconcile):
            with pytest.raises(RefusedError, match=message) as error:
                await perform(world, path, **options)
            assert error.value.code is ErrorCode.NOT_FOUND
    empty = write()
    with pytest.raises(RefusedError, match="the file has no lines; specify its period"):
        await _compare(world, empty, until=None)
    assert (await _compare(world, empty)).difference_count == 0


async def test_payouts_are_reported_by_the_comparison_and_recorded_when_applied(
    world: World, write: Write
) -> None:
    await _pay(world, "cap-1")
    payouts = (f"payout,po_1,,1543.89,THB,{_AT},46.11", f"payout,po_2,,7.00,THB,{_AT},")
    path = write(f"payment,cap-1,,1590.00,THB,{_AT},", *payouts, header=f"{_HEADER},fee")
    expected = ["payout po_1: 1543.89 THB and a fee of 46.11", "payout po_2: 7.00 THB"]
    foreseen = await _compare(world, path)
    assert (foreseen.difference_count, foreseen.payouts.new, foreseen.new_payouts) == (
        0,
        2,
        expected,
    )
    assert _counts(foreseen)["payment"] == (1, 1, 0, 0, 0)
    apply = ReconcileProviderFile(comparison=_comparison(path))
    changes = await describe(world.service.operation_context, apply, ACTOR)
    assert changes == ["cases to open: 0", "payouts to record: 2"]
    assert await world.perform(ListGatewayPayouts()) == []
    applied = await _reconcile(world, path)
    assert (applied.payouts.lines, applied.payouts.new, applied.new_payouts) == (2, 2, expected)
    repeated = await _reconcile(world, path)
    assert (repeated.payouts.new, repeated.payouts.repeated, repeated.new_payouts) == (0, 2, [])
    recorded = await world.perform(ListGatewayPayouts())
    assert {payout.reference for payout in recorded} == {"po_1", "po_2"}
    assert "reconciliation" not in {payout.recorded_by for payout in recorded}
    assert await world.perform(CheckLedger()) == []
    [last, *_] = await world.perform(ListAuditEntries(of="reconcile"))
    assert json.dumps(last.details).count("po_1") == 0


async def test_a_different_payout_is_a_difference_and_opens_a_case_when_applied(
    world: World, write: Write
) -> None:
    path = write(f"payout,po_1,,1.00,THB,{_AT}")
    await _reconcile(world, path, since=None, until=None)
    write(f"payout,po_1,,2.00,THB,{_AT}")
    expected = "fake payout po_1: different, 2.00 THB there, 1.00 THB here"
    foreseen = await _compare(world, path, since=None, until=None)
    assert (foreseen.difference_count, foreseen.differences) == (1, [expected])
    assert await world.perform(ListCases()) == []
    applied = await _reconcile(world, path, since=None, until=None)
    assert (applied.opened, applied.payouts.different) == (1, 1)
    assert [case.subject for case in await world.perform(ListCases())] == [expected]


async def test_payouts_need_an_account_if_the_provider_has_several(
    world: World, write: Write
) -> None:
    other_account_id = await world.add_account("http://other.test", signing_secret="x")
    path = write(f"payout,po_1,,1.00,THB,{_AT}")
    for perform in (_compare, _reconcile):
        with pytest.raises(RefusedError, match="fake has several accounts; select one"):
            await perform(world, path)
    await _reconcile(world, path, account_id=other_account_id)
    [payout] = await world.perform(ListGatewayPayouts())
    assert payout.account_id == other_account_id


async def test_captures_of_test_accounts_are_not_compared(world: World, write: Write) -> None:
    account = AddAccount(
        provider="fake",
        base_url="http://gateway.test",
        credentials={"signing_secret": world.signing_secret},
        test=True,
    )
    test_account_id = (await world.perform(account)).id
    await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    callback = VerifiedCallback(id="told-1", report=captured(4200, "THB", reference="cap-test"))
    await world.service.callback_receiver.receive(test_account_id, callback, b"raw body")
    await _pay(world, "cap-1")
    path = write(f"payment,cap-1,,1590.00,THB,{_AT}")
    assert (await _compare(world, path)).difference_count == 0
    for perform in (_compare, _reconcile):
        with pytest.raises(
            RefusedError, match=f"account {test_account_id} is a test account"
        ) as error:
            await perform(world, path, account_id=test_account_id)
        assert error.value.code is ErrorCode.UNPROCESSABLE
        with pytest.raises(RefusedError, match="'test' has no live account to compare"):
            await perform(world, path, provider="test")


async def test_a_file_with_too_many_differences_opens_no_cases(
    world: World, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference_cases, "DIFFERENCES_MAX", 2)
    lines = [f"payment,cap-{number},,1.00,THB,{_AT}" for number in range(3)]
    with pytest.raises(RefusedError, match=r"there are too many differences \(3\);"):
        await _reconcile(world, write(*lines))
    assert await world.perform(ListCases(status="ALL")) == []
    assert (await _reconcile(world, write(*lines[:2]))).opened == 2


@pytest.mark.full
async def test_a_long_file_is_not_loaded_into_memory_as_a_whole(
    world: World, tmp_path: Path
) -> None:
    count = 30_000
    path = tmp_path / "long.csv"
    with path.open("w") as out:
        print(_HEADER, file=out)
        for number in range(count):
            print(f"payment,cap-{number:0100},,1590.00,THB,{_AT}", file=out)
    chunk_sizes: list[int] = []
    tracemalloc.start()
    comparison = ReconciliationInput(
        file=open_provider_file(path, chunk_sizes.append), provider="fake", since=_LONG_AGO
    )
    result = await world.perform(CompareProviderFile(comparison=comparison))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert _counts(result)["payment"] == (count, 0, 0, count, 0)
    assert len(result.differences) == 100
    assert sum(chunk_sizes) == 2 * path.stat().st_size
    assert peak < 3 * path.stat().st_size  # the parsed lines would need six times the file size


async def test_the_transaction_of_a_slowly_read_file_does_not_time_out(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "slow.csv"
    lines = (f"payment,cap-{number},,1590.00,THB,{_AT}" for number in range(1_000))
    path.write_text("\n".join([_HEADER, *lines]))
    pool = world.database._pool  # it measures deadlines in checks

    async def run_checks() -> None:
        for _ in range(12):
            pool.check()

    loop = asyncio.get_running_loop()

    def pass_timeouts(_: int) -> None:
        if (
            threading.current_thread() is not threading.main_thread()
        ):  # lines are read in a worker thread
            asyncio.run_coroutine_threadsafe(run_checks(), loop).result()

    comparison = ReconciliationInput(
        file=open_provider_file(path, pass_timeouts), provider="fake", since=_LONG_AGO
    )
    result = await world.perform(CompareProviderFile(comparison=comparison))
    assert _counts(result)["payment"] == (1_000, 0, 0, 1_000, 0)


def test_the_repr_of_a_file_does_not_contain_its_path() -> None:
    file = ProviderFile(path=Path("/somewhere"), sha256="00")
    assert "somewhere" not in repr(file)
