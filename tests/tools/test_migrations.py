"""The migration lint rejects long table locks, and accepts the alternatives."""

from pathlib import Path

import asyncpg
import pytest

from payintent.db import migrations_runner
from tools import migrations

ADD_CHECK = "ALTER TABLE payment ADD CONSTRAINT c CHECK (note IS NOT NULL) NOT VALID;"
VALIDATE = "ALTER TABLE payment VALIDATE CONSTRAINT c;"
SET_NOT_NULL = "ALTER TABLE payment ALTER COLUMN note SET NOT NULL;"

REJECTED = {
    "check": [
        "ALTER TABLE payment ADD COLUMN note text CHECK (length(note) < 40)",
        "ALTER TABLE payment ADD note text CONSTRAINT note_length CHECK (length(note) < 40)",
        "alter table only public.payment add column if not exists note text check (note <> '')",
        "ALTER TABLE payment ADD COLUMN a int, ADD CONSTRAINT c CHECK (a IN (1, 2)), ADD b int",
        'ALTER TABLE "payment" ADD CHECK (amount > 0)',
        "ALTER TABLE payment ADD CONSTRAINT p FOREIGN KEY (note) REFERENCES note (id)",
        "ALTER TABLE payment ADD COLUMN note int DEFAULT 1 REFERENCES note (id)",
        "ALTER TABLE payment ADD CONSTRAINT c CHECK (note <> ' NOT VALID')",
    ],
    "index": [
        "CREATE INDEX payment_note ON payment (note)",
        "CREATE UNIQUE INDEX IF NOT EXISTS payment_note ON ONLY public.payment (note)",
        "CREATE INDEX ON payment (note)",
        "ALTER TABLE payment ADD CONSTRAINT payment_note UNIQUE (note)",
        "ALTER TABLE payment ADD PRIMARY KEY (id)",
        "ALTER TABLE payment ADD CONSTRAINT x EXCLUDE USING gist (note WITH =)",
        "ALTER TABLE payment ADD COLUMN note text UNIQUE",
        "REINDEX TABLE payment",
        # the table may already exist
        "CREATE TABLE IF NOT EXISTS payment (note text); CREATE INDEX ON payment (note)",
    ],
    "concurrently": [
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_note ON payment (note)",
        "-- concurrently\nCREATE INDEX CONCURRENTLY payment_note ON payment (note)",
        "-- concurrently\nCREATE INDEX payment_note ON payment (note)",
        "-- concurrently\nALTER TABLE payment ADD COLUMN note text",
        "-- concurrently\nDROP INDEX payment_note",
        "\n-- concurrently\nDROP INDEX CONCURRENTLY IF EXISTS payment_note",
    ],
    "type": [
        "ALTER TABLE payment ALTER COLUMN note TYPE bigint",
        "ALTER TABLE payment ALTER note SET DATA TYPE bigint USING note::bigint",
    ],
    "not-null": [
        SET_NOT_NULL,
        f"{ADD_CHECK} {SET_NOT_NULL}",
        "ALTER TABLE payment ADD COLUMN note text NOT NULL",
        "ALTER TABLE payment ADD CONSTRAINT n NOT NULL note",
    ],
    "rewrite": [
        "ALTER TABLE payment ADD COLUMN note uuid DEFAULT gen_random_uuid()",
        "ALTER TABLE payment ADD COLUMN note float NOT NULL DEFAULT (1 + random())",
        "ALTER TABLE payment ADD COLUMN note timestamptz DEFAULT clock_timestamp()",
        "ALTER TABLE payment ADD COLUMN note bigserial",
        "ALTER TABLE payment ADD COLUMN note bigint GENERATED ALWAYS AS IDENTITY",
        "ALTER TABLE payment ADD COLUMN note text GENERATED ALWAYS AS (lower(note)) STORED",
        "ALTER TABLE payment SET UNLOGGED",
    ],
    "held-lock": [
        f"{ADD_CHECK} {VALIDATE}",
        "ALTER TABLE payment ADD CONSTRAINT c CHECK (a > 0) NOT VALID, VALIDATE CONSTRAINT c",
        "ALTER TABLE payment ADD COLUMN note text; UPDATE payment SET note = ''",
        "ALTER TABLE payment DROP COLUMN note; DELETE FROM merchant WHERE amount = 0",
        "ALTER TABLE payment DROP COLUMN note; ALTER TABLE refund VALIDATE CONSTRAINT c",
        "ALTER TABLE payment DROP COLUMN note; WITH n AS (SELECT 1) UPDATE refund SET note = ''",
    ],
    "lock": [
        "VACUUM FULL payment",
        "VACUUM (VERBOSE, FULL) payment",
        "CLUSTER payment USING payment_pkey",
        "LOCK TABLE payment",
        "LOCK payment IN ACCESS EXCLUSIVE MODE NOWAIT",
        "LOCK TABLE payment IN SHARE MODE",
    ],
    "opaque": ["DO $$ BEGIN ALTER TABLE payment ALTER COLUMN note TYPE bigint;END $$"],
    "allow": [
        "-- lint: allow check: the table is small\nALTER TABLE payment ADD COLUMN note text",
        "-- lint: allowed\nALTER TABLE payment ADD COLUMN note text",
        "ALTER TABLE payment ADD COLUMN note text; -- lint: allow check: after the statement",
    ],
}
ACCEPTED = [
    "ALTER TABLE payment ADD COLUMN note text",
    "ALTER TABLE payment ADD COLUMN note text NOT NULL DEFAULT 'CHECK (x); --'",
    "ALTER TABLE payment ADD COLUMN note numeric(38, 18) DEFAULT '1.5'::numeric(38, 18) NOT NULL",
    "ALTER TABLE payment ADD COLUMN noted_at timestamptz NOT NULL DEFAULT now()",
    "ALTER TABLE payment ADD COLUMN noted_at timestamptz DEFAULT clock()",
    "ALTER TABLE payment ADD COLUMN note int REFERENCES note (id)",
    "ALTER TABLE payment ADD COLUMN a int, ADD CONSTRAINT c CHECK (a IN (1, 2)) NOT VALID",
    "ALTER TABLE payment ADD CONSTRAINT p FOREIGN KEY (note) REFERENCES note (id) NOT VALID",
    "ALTER TABLE payment ADD CONSTRAINT payment_note UNIQUE USING INDEX payment_note",
    "ALTER TABLE payment DROP CONSTRAINT c; ALTER TABLE payment ALTER note DROP NOT NULL",
    "UPDATE merchant SET name = 'x'; ALTER TABLE payment ADD COLUMN note text",
    "CREATE TABLE n (a int); ALTER TABLE payment ADD COLUMN note text; UPDATE n SET a = 1",
    f"{VALIDATE} ALTER TABLE payment DROP CONSTRAINT d",
    "-- concurrently\nCREATE INDEX CONCURRENTLY IF NOT EXISTS payment_note ON payment (note);",
    "-- concurrently\nDROP INDEX CONCURRENTLY IF EXISTS payment_note",
    "LOCK TABLE payment IN ROW EXCLUSIVE MODE",
    "VACUUM payment",
    # a table that the migration creates
    """
    CREATE TABLE "note" (id int CHECK (id > 0));
    CREATE INDEX note_id ON note (id);
    ALTER TABLE public.note ADD COLUMN text text CHECK (text <> ''), ALTER COLUMN id TYPE bigint;
    ALTER TABLE note ALTER COLUMN text SET NOT NULL;
    LOCK TABLE note;
    """,
    # text that only looks like a statement
    "COMMENT ON TABLE payment IS 'it''s; VACUUM FULL payment;' /* ; LOCK TABLE payment; */",
    "COMMENT ON TABLE payment IS E'it\\'s; LOCK TABLE payment;'",
    """
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $body$
    BEGIN
        LOCK TABLE payment;
        RETURN $$;$$;
    END $body$;
    """,
]


def lint(folder: Path, *texts: str) -> list[str]:
    for number, text in enumerate(texts, start=2):
        (folder / f"{number:04}_migration.sql").write_text(text)
    return [problem.rule for problem in migrations.check(migrations.migrations(folder))]


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, texts in REJECTED.items() for text in texts]
)
def test_a_statement_that_locks_a_table_is_rejected(tmp_path: Path, rule: str, text: str) -> None:
    assert lint(tmp_path, text) == [rule]


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_statement_that_locks_a_table_only_briefly_is_accepted(tmp_path: Path, text: str) -> None:
    assert lint(tmp_path, text) == []


def test_every_rule_has_an_example() -> None:
    assert set(REJECTED) == set(migrations.RULES)


@pytest.mark.parametrize("rule", set(REJECTED) - {"allow"})
def test_a_comment_with_a_reason_allows_a_statement(tmp_path: Path, rule: str) -> None:
    text = next(text for text in REJECTED[rule] if "; " not in text)
    first, _, rest = text.rpartition("\n")  # keep `-- concurrently` in the first line
    allowed = f"{first}\n-- lint: allow {rule}: it is small\n{rest}"
    assert lint(tmp_path, allowed) == []
    assert lint(tmp_path, allowed.replace(": it is small", ":")) == ["allow", rule]


def test_an_allowance_is_for_one_rule_and_one_statement(tmp_path: Path) -> None:
    lock = "LOCK TABLE payment;\n"
    allowance = "-- lint: allow lock: it is small\n"
    assert lint(tmp_path, allowance + lock + lock) == ["lock"]
    assert lint(tmp_path, allowance + "VACUUM FULL payment;" + allowance + SET_NOT_NULL) == [
        "allow",
        "not-null",
    ]


def test_a_column_may_become_not_null_after_its_check_is_validated(tmp_path: Path) -> None:
    assert lint(tmp_path, ADD_CHECK, VALIDATE, SET_NOT_NULL) == []
    assert lint(tmp_path, ADD_CHECK, SET_NOT_NULL, VALIDATE) == ["not-null"]


def test_a_problem_names_the_file_the_line_and_the_alternative(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0001_initial.sql").write_text("VACUUM FULL payment;")
    monkeypatch.setattr("sys.argv", ["migrations", str(tmp_path)])
    assert migrations.main() == 0
    (tmp_path / "0002_note.sql").write_text(f"SELECT 1;\n\n-- why\n{SET_NOT_NULL}\n")
    assert migrations.main() == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("0002_note.sql:4: not-null: PostgreSQL would read every row")


def test_our_migrations_pass_and_make_check_runs_the_lint() -> None:
    assert list(migrations.check(migrations.migrations(migrations.FOLDER))) == []
    assert migrations_runner.Migration(2, "", migrations.CONCURRENTLY).is_concurrent
    check = Path("Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    assert "$(BIN)/python -m tools.migrations" in check


async def test_the_accepted_ways_to_add_a_column_do_not_rewrite_a_table(empty_url: str) -> None:
    """The lint's assumptions about PostgreSQL, checked with the tests' server."""
    connection = await asyncpg.connect(empty_url)
    await connection.execute(
        "CREATE TABLE note (id int PRIMARY KEY); CREATE TABLE payment (id int);"
        "CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE RETURN now();"
        "INSERT INTO payment VALUES (1)"
    )
    columns = [text for text in ACCEPTED if " ADD COLUMN " in text and "UPDATE" not in text]
    columns = [text for text in columns if "CREATE" not in text]
    assert len(columns) > 4
    for text in columns:
        before = await _file(connection)
        await connection.execute(text)
        assert await _file(connection) == before, text
        for name in ("note", "noted_at", "a"):
            await connection.execute(f"ALTER TABLE payment DROP COLUMN IF EXISTS {name}")
    for text in REJECTED["rewrite"][:5]:
        before = await _file(connection)
        await connection.execute(text)
        assert await _file(connection) != before, text
        await connection.execute("ALTER TABLE payment DROP COLUMN note")
    await connection.close()


async def _file(connection: asyncpg.Connection) -> int:
    return await connection.fetchval("SELECT pg_relation_filenode('payment')")
