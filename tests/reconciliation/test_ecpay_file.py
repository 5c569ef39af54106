"""Lines of ECPay settlement files are matched by their order numbers."""

from decimal import Decimal
from pathlib import Path

import pytest

from payintent.cases.operations import ListCases
from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.ecpay.settlement_file import COLUMNS, LAYOUTS
from payintent.payments.model import Payment
from payintent.reconciliation.operations import ListReconciliationRuns
from payintent.reconciliation.runs import compare_new_files
from payintent.reconciliation.runs_store import RunRecord
from payintent.reconciliation.sources import FolderSource
from tests.reconciliation.capabilities import with_capabilities
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import process_due_refunds, request_refund
from tests.support.fakes import FakeGateway, captured
from tests.support.world import World

_DAY_S = 24 * 3600
_FORM = "YYYY/MM/DD HH24:MI:SS"


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def _pay(world: World, trade_no: str) -> tuple[Payment, str]:
    """Create and pay a payment of 1590 TWD; return it and our order number."""
    payment = await world.create(currency="TWD", amount=Decimal(1590), amount_text="1590")
    session = (await world.select(payment)).session
    number = f"A{trade_no}"
    await world.rows("UPDATE session SET reference = $2 WHERE id = $1", session.id, number)
    [row] = await world.rows("SELECT total_minor FROM session WHERE id = $1", session.id)
    await world.report(
        payment,
        session.id,
        captured(int(row["total_minor"]), reference=trade_no, currency="TWD"),
    )
    assert await world.status(payment) == "PAID"
    return payment, number


async def _now(world: World) -> str:
    [row] = await world.rows(
        f"SELECT to_char(clock() AT TIME ZONE 'Asia/Taipei', '{_FORM}') AS now"
    )
    return row["now"]


async def _compare(
    world: World,
    folder: Path,
    *lines: str,
    encoding: str = "utf-8-sig",
    name: str = "a.csv",
    note: str = "",
    total: str = "合計,1546",
    started_at: str = "",
) -> RunRecord:
    """Put a file into the account's folder and compare it. Each line has an order and an amount.

    The time of payments is `started_at`, by default now.
    """
    now = await _now(world)
    rows = [",".join(COLUMNS)]
    for number, line in enumerate(lines, 1):
        order, amount = line.split()
        times = f"{started_at or now},{now}"
        rows.append(f"{number},1234{number},777777,{order},{times},{amount},-44,1546,{note}")
    path = folder / str(world.account_id) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\r\n".join([*rows, total, ""]), encoding=encoding)
    context = with_capabilities(world.service.reconciliation_context, layouts=LAYOUTS)
    await compare_new_files(context, FolderSource(str(folder)))
    return (await world.perform(ListReconciliationRuns()))[0]


async def test_further_columns_may_contain_characters_that_only_windows_adds_to_big5(
    world: World, tmp_path: Path
) -> None:
    await _pay(world, "2611210001")
    run = await _compare(world, tmp_path, "2611210001 1590", encoding="cp950", note="恒碁")
    assert (run.status, run.problem) == ("matched", "")


async def test_a_total_may_have_as_many_columns_as_the_other_lines(
    world: World, tmp_path: Path
) -> None:
    await _pay(world, "2611210001")
    run = await _compare(world, tmp_path, "2611210001 1590", total="合計,,,,,,1590,-44,1546,")
    assert (run.status, run.lines, run.problem) == ("matched", 1, "")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8", "big5"])
async def test_payments_are_matched_by_our_number_or_the_gateways_number(
    world: World, tmp_path: Path, encoding: str
) -> None:
    assert EcpayGateway.capabilities.layouts == LAYOUTS
    await _pay(world, "2611210001")
    _, second = await _pay(world, "2611210002")
    run = await _compare(world, tmp_path, "2611210001 1590", f"{second} 1590", encoding=encoding)
    assert (run.status, run.lines, run.problem) == ("matched", 2, "")


async def test_each_refund_is_matched_once_by_order_and_amount(
    world: World, tmp_path: Path
) -> None:
    payment, number = await _pay(world, "2611210001")
    for amount in ("300", "300", "90"):
        await request_refund(world, payment, amount)
    assert await process_due_refunds(world) == 3
    lines = [f"{number} 1590", f"{number} -300", f"{number} -90", f"{number} -300"]
    run = await _compare(world, tmp_path, *lines)
    assert (run.status, run.lines) == ("matched", 4)


async def test_equal_refunds_on_consecutive_days_are_matched_with_the_file_of_their_day(
    world: World, tmp_path: Path
) -> None:
    payment, number = await _pay(world, "2611210001")
    for day in (1, 2):
        await world.move_clock(day * _DAY_S)
        started_at = await _now(world)
        await _pay(world, f"261122000{day}")
        await world.move_clock(day * _DAY_S + 3600)
        await request_refund(world, payment, "300")
        assert await process_due_refunds(world) == 1
        await world.move_clock(day * _DAY_S + 3660)
        lines = [f"261122000{day} 1590", f"{number} -300"]
        run = await _compare(world, tmp_path, *lines, name=f"{day}.csv", started_at=started_at)
        assert (run.status, run.lines) == ("matched", 2)


async def test_an_unknown_refund_and_an_unknown_order_open_cases(
    world: World, tmp_path: Path
) -> None:
    payment, number = await _pay(world, "2611210001")
    await request_refund(world, payment, "300")
    assert await process_due_refunds(world) == 1
    lines = [f"{number} 1590", f"{number} -300", f"{number} -300", "Z9 500"]
    run = await _compare(world, tmp_path, *lines)
    assert (run.status, run.opened) == ("differs", 2)
    subjects = sorted(case.subject or "" for case in await world.perform(ListCases()))
    assert subjects[0].startswith("fake payment Z9: extra, 500")
    assert subjects[1].startswith(f"fake refund {number} 300 2: extra, 300")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("A1 12.5", "the amount must be in whole dollars"),
        ("A1 0", "the amount must be in whole dollars"),
        ("A-1 5", "the order number is invalid"),
    ],
)
async def test_an_invalid_line_fails_its_file(
    world: World, tmp_path: Path, line: str, problem: str
) -> None:
    run = await _compare(world, tmp_path, line)
    assert run.status == "failed"
    assert run.problem.startswith(f"line 2: {problem}")
