"""What Citus refuses of a statement is found, and what is written instead is not."""

import pytest

from payintent.storage.table_homes import TABLE_HOMES, TableHome
from tools import distributed_sql
from tools.distributed_sql import ROOT, find_in, find_in_schema, read_schema
from tools.sql_statements import statements

TABLES = (ROOT / "payintent" / "storage" / "schema.sql").read_text()
DISTRIBUTE = (ROOT / "deploy" / "citus" / "distribute.sql").read_text()
SCHEMA = read_schema(TABLES)
KEY = "ALTER TABLE ONLY public.rate_state\n    ADD CONSTRAINT key PRIMARY KEY (merchant_id);"

#: By the beginning of the rule: what is refused, and what does the same.
EXAMPLES = {
    "ON CONFLICT": [
        (
            (
                "INSERT INTO idempotency (key, created_at) VALUES ($1, clock())"
                " ON CONFLICT (key) DO UPDATE SET created_at = clock()"
            ),
            (
                "INSERT INTO idempotency (key, created_at) VALUES ($1, clock())"
                " ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at"
            ),
        ),
        (
            (
                "INSERT INTO idempotency AS i (key, created_at) VALUES ($1, clock())"
                " ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at"
                " WHERE i.created_at < excluded.created_at - interval '24 hours'"
            ),
            (
                "INSERT INTO idempotency AS i (key, created_at) VALUES ($1, clock())"
                " ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at"
                " WHERE excluded.created_at - i.created_at > interval '24 hours'"
            ),
        ),
    ],
    "a subquery in INSERT": [
        (
            (
                "INSERT INTO capture (id) VALUES ($1)"
                " RETURNING id, (SELECT merchant_id FROM provider_account WHERE id = $2)"
            ),
            (
                "WITH added AS (INSERT INTO capture (id) VALUES ($1) RETURNING id)"
                " SELECT id, (SELECT merchant_id FROM provider_account WHERE id = $2) FROM added"
            ),
        ),
        (
            (
                "INSERT INTO rate_state AS s (merchant_id, full_at) VALUES ($1, $2)"
                " ON CONFLICT (merchant_id) DO UPDATE"
                " SET full_at = (SELECT least(s.full_at, excluded.full_at))"
            ),
            (
                "INSERT INTO rate_state AS s (merchant_id, full_at) VALUES ($1, $2)"
                " ON CONFLICT (merchant_id) DO UPDATE"
                " SET full_at = least(s.full_at, excluded.full_at)"
            ),
        ),
    ],
    "INSERT … SELECT": [
        (
            (
                "INSERT INTO attempt (id, started_at)"
                " SELECT u.id, clock() FROM unnest($1::uuid[]) AS u (id)"
                " JOIN event e ON e.id = u.id RETURNING id"
            ),
            (
                "WITH u AS MATERIALIZED ("
                "SELECT u.id FROM unnest($1::uuid[]) AS u (id) JOIN event e ON e.id = u.id)"
                " INSERT INTO attempt (id, started_at) SELECT id, clock() FROM u RETURNING id"
            ),
        ),
        (  # by the default of a column that is left out
            "INSERT INTO mail (kind, payment_id) SELECT 'receipt', id FROM payment",
            (
                "WITH p AS MATERIALIZED (SELECT id FROM payment)"
                " INSERT INTO mail (kind, payment_id) SELECT 'receipt', id FROM p"
            ),
        ),
        (  # a CTE that is not MATERIALIZED is no step of its own; of what is copied, too
            (
                "WITH m AS (SELECT id FROM merchant)"
                " INSERT INTO payment (merchant_id, created_at) SELECT id, clock() FROM m"
            ),
            (
                "WITH m AS (INSERT INTO event (merchant_id) VALUES ($1)"
                " RETURNING merchant_id AS id)"
                " INSERT INTO payment (merchant_id, created_at) SELECT id, clock() FROM m"
            ),
        ),
    ],
    "a volatile function": [
        (
            "UPDATE session SET id = gen_random_uuid() WHERE id = $1",
            "UPDATE session SET id = $2 WHERE id = $1",
        ),
        (
            "DELETE FROM session WHERE pg_try_advisory_xact_lock($1)",
            "DELETE FROM session WHERE id = $1",
        ),
    ],
    "a function that is not immutable": [
        (
            "UPDATE money_case SET note = concat_ws('; ', nullif(note, ''), $2::text)",
            "UPDATE money_case SET note = coalesce(nullif(note, '') || '; ', '') || $2::text",
        ),
        (
            "UPDATE refund SET next_at = next_at + $2 * interval '1 second' WHERE id = $1",
            "UPDATE refund SET next_at = clock() + $2 * interval '1 second' WHERE id = $1",
        ),
        (
            "DELETE FROM delivery WHERE next_at + interval '1 day' < clock()",
            "DELETE FROM delivery WHERE next_at < clock() - interval '1 day'",
        ),
    ],
    "CASE or COALESCE": [
        (
            "UPDATE session SET returned_at = CASE WHEN $2 THEN clock() END",
            (
                "UPDATE session SET returned_at = CASE WHEN $2 THEN t.now END"
                " FROM (SELECT clock() AS now) t"
            ),
        ),
        (
            "UPDATE session SET closing_at = $1 WHERE coalesce(returned_at <= clock(), true)",
            "UPDATE session SET inquiries = 1 WHERE returned_at IS NULL OR returned_at <= clock()",
        ),
    ],
    "RETURNING": [
        (
            "UPDATE session SET inquiries = 0 RETURNING clock() AS now",
            "UPDATE session SET inquiries = 0 FROM (SELECT clock() AS now) t RETURNING t.now",
        )
    ],
    "DELETE of rows IN": [
        (
            "DELETE FROM attempt WHERE (event_id, number) IN (SELECT event_id, number FROM due)",
            (
                "DELETE FROM attempt a USING due"
                " WHERE a.event_id = due.event_id AND a.number = due.number"
            ),
        )
    ],
    "CASE of a parameter": [
        (
            "SELECT CASE $1 WHEN 'PAID' THEN paid_at ELSE failed_at END FROM payment",
            "SELECT CASE WHEN $1 = 'PAID' THEN paid_at ELSE failed_at END FROM payment",
        ),
        (
            "SELECT CASE $1::text WHEN 'PAID' THEN paid_at END FROM payment",
            "SELECT CASE status WHEN 'PAID' THEN paid_at END FROM payment",
        ),
    ],
}


@pytest.mark.parametrize(
    ("rule", "refused", "instead"),
    [(rule, *pair) for rule, pairs in EXAMPLES.items() for pair in pairs],
)
def test_what_is_refused_is_found_and_what_is_written_instead_is_not(
    rule: str, refused: str, instead: str
) -> None:
    assert [item.rule.startswith(rule) for item in find_in(refused, SCHEMA)] == [True]
    assert find_in(instead, SCHEMA) == []


def test_every_rule_has_an_example() -> None:
    rules = [*distributed_sql.RULES]
    assert all(sum(rule.startswith(name) for name in EXAMPLES) == 1 for rule in rules)
    assert len(rules) == len(EXAMPLES)


def test_what_only_control_has_may_be_written_as_it_likes() -> None:
    assert TABLE_HOMES["cell_process"] is TableHome.CONTROL
    assert find_in("UPDATE cell_process SET seen_at = coalesce(seen_at, clock())", SCHEMA) == []
    assert find_in("UPDATE payment SET paid_at = coalesce(paid_at, clock())", SCHEMA) != []


def test_what_is_copied_is_written_in_control_alone() -> None:
    assert TABLE_HOMES["api_key"] is TableHome.COPIED
    assert find_in("UPDATE api_key SET revoked_at = coalesce(revoked_at, clock())", SCHEMA) == []


def test_an_unlogged_table_is_found_unless_it_is_made_a_logged_one() -> None:
    table = f"CREATE UNLOGGED TABLE public.rate_state (\n    merchant_id bigint NOT NULL\n);\n{KEY}"
    [found] = find_in_schema(table, "")
    assert "UNLOGGED" in found
    assert "rate_state" in found
    assert list(find_in_schema(table, DISTRIBUTE)) == []


def test_a_table_without_a_primary_key_is_found_unless_its_rows_are_named_in_full() -> None:
    table = "CREATE TABLE public.rate_state (\n    merchant_id bigint NOT NULL\n);"
    [found] = find_in_schema(table, "")
    assert "no PRIMARY KEY" in found
    assert list(find_in_schema(f"{table}\n{KEY}", "")) == []
    assert list(find_in_schema(table, DISTRIBUTE)) == []


def test_a_trigger_is_found_unless_its_path_is_set() -> None:
    trigger = "CREATE TRIGGER refund_frozen BEFORE UPDATE ON public.refund FOR EACH ROW"
    [found] = find_in_schema(trigger, "")
    assert "refund_frozen" in found
    assert list(find_in_schema(trigger, DISTRIBUTE)) == []


def test_nothing_in_the_service_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert distributed_sql.main() == 0
    assert "nothing" in capsys.readouterr().out


def test_the_schema_and_most_statements_are_looked_at() -> None:
    looked_at = [item for item in statements() if distributed_sql.is_of_cells(item.query, SCHEMA)]
    assert len(looked_at) > 300
    assert SCHEMA.computed["mail"] == {"id", "created_at", "next_at"}
    assert SCHEMA.computed["delivery"] == frozenset()


def test_what_is_found_is_said_with_its_function(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = "UPDATE payment SET paid_at = coalesce(paid_at, clock())"
    monkeypatch.setattr(
        distributed_sql,
        "statements",
        lambda: [distributed_sql.Statement("payments.mark_paid", refused)],
    )
    assert distributed_sql.main() == 1
    said = capsys.readouterr().out
    assert "payments.mark_paid: CASE or COALESCE" in said
