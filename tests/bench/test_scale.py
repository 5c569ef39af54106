"""The number of installations, calculated from the rate and from the stored payments."""

from bench.scale import Cost, Host, kept_table, rate_table

COST = Cost(database_us=1_000, create_us=100, service_us=2_000, stored_bytes=1_000)
HOST = Host(cores=10, busy=0.5, disk_tb=2)


def test_the_rate_of_a_primary_is_limited_by_its_cores() -> None:
    assert COST.primaries_for_rate(5_000, HOST, COST.database_us) == 1  # 5 of 10 cores
    assert COST.primaries_for_rate(5_001, HOST, COST.database_us) == 2
    assert COST.primaries_for_rate(5_001, HOST, COST.create_us) == 1


def test_the_service_needs_additional_cores_with_the_same_utilization() -> None:
    assert COST.service_cores(1_000, HOST) == 4


def test_stored_payments_need_disk_space() -> None:
    assert COST.terabytes(10**9) == 1
    assert [
        COST.primaries_for_payments(payments, HOST) for payments in (10**9, 2 * 10**9, 10**10)
    ] == [
        1,
        1,
        5,
    ]


def test_the_tables_have_a_row_for_each_rate_and_payment_count() -> None:
    rates, sizes = list(rate_table(COST, HOST)), list(kept_table(COST, HOST))
    assert rates[-1] == "| 100,000 | 20 | 2 | 400 | 3,154 |"
    assert sizes[-1] == "| 10^11 | 100.00 | 50 |"
