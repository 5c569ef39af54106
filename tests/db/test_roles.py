"""Each role in docs/operate/install.md can do its work, but cannot change the audit log."""

import ast
import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from payintent.cli import doctor
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.docs.parse_pages import blocks, page
from tests.support.roles import (
    OWNER,
    PASSWORD,
    RUNNING,
    database_with_roles,
    making_roles,
    run,
    statements,
    url_of,
)
from tools import sql_statements

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "payintent"
MIGRATING = {
    f"db.migrations_runner.{name}" for name in ("_migrate", "_upgrade", "_apply", "_record")
}  # run by the owner
#: Modules that run only in the API or in a terminal.
NOT_IN_WORKERS = re.compile(
    r"(app|checkout|cli|configuration|console|operators|overview|payment_links|portal)\b"
    r"|merchants\.(access|activation|call_log|limits|provisioning)$|payment_history\.timeline$"
    r"|.*(operations|routes)$"
    r"|privacy\.retention_store$"  # erases without events, whose statements the role lacks
)


@pytest.fixture(scope="module")
def roles() -> Iterator[dict[str, str]]:
    """The URL of a database for each role. Tests must not leave data in it."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        opening = database_with_roles(os.environ["TESTS_POSTGRES_URL"])
        yield runner.run(stack.enter_async_context(opening))
        runner.run(stack.aclose())


@cache
def _list_role_statements() -> list[sql_statements.Statement]:
    return [
        statement
        for statement in sql_statements.statements()
        if statement.function not in MIGRATING
    ]


async def _get_denied_statements(url: str) -> dict[str, str]:
    """Plan every statement as a role, which checks its permissions; return the denials."""
    connection = await asyncpg.connect(url)
    denied = {}
    try:
        all_statements = _list_role_statements()
        temporary = [
            statement for statement in all_statements if "TEMPORARY TABLE" in statement.query
        ]
        for item in [*temporary, *(item for item in all_statements if item not in temporary)]:
            try:
                await _plan(connection, item)
            except (asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedTableError) as error:
                denied[item.function] = str(error)
    finally:
        await connection.close()
    return denied


async def _plan(connection: asyncpg.Connection, statement: sql_statements.Statement) -> None:
    if "TEMPORARY TABLE" in statement.query:
        await connection.execute(statement.query.replace("ON COMMIT DROP", ""))
    elif re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", statement.query):
        await connection.execute(f"PREPARE statement AS {statement.query}")
        numbers = [int(item) for item in re.findall(r"\$(\d+)", statement.query)]
        null_arguments = ", ".join(["NULL"] * max(numbers, default=0))
        try:
            await connection.execute(
                f"EXPLAIN EXECUTE statement{f'({null_arguments})' if null_arguments else ''}"
            )
        finally:
            await connection.execute("DEALLOCATE statement")
    else:
        async with connection.transaction():
            await connection.execute(statement.query)


async def test_the_roles_and_database_can_be_created_without_a_superuser() -> None:
    server, name = os.environ["TESTS_POSTGRES_URL"], f"made_{uuid4().hex[:8]}"
    creator = f"{name}_maker"
    await run(server, f"CREATE ROLE {creator} LOGIN CREATEROLE CREATEDB PASSWORD '{PASSWORD}'")
    connection = await asyncpg.connect(url_of(creator, server, "postgres"))
    try:
        for statement in making_roles():
            await connection.execute(statement.replace("payintent", name))
        owner = "SELECT datdba::regrole::text FROM pg_database WHERE datname = $1"
        assert await connection.fetchval(owner, name) == f"{name}_migrate"
    finally:
        await connection.close()
        role_names = [f"{name}_{item}" for item in ("migrate", "api", "worker", "read")]
        await run(server, f"DROP DATABASE IF EXISTS {name}")
        await run(server, f"DROP ROLE IF EXISTS {', '.join(role_names)}")
        await run(server, f"DROP ROLE {creator}")


async def test_the_api_role_may_run_every_statement_of_the_service(roles: dict[str, str]) -> None:
    assert len(_list_role_statements()) > 200
    assert await _get_denied_statements(roles["payintent_api"]) == {}


async def test_the_worker_role_is_denied_only_statements_that_no_worker_runs(
    roles: dict[str, str],
) -> None:
    denied = set(await _get_denied_statements(roles["payintent_worker"]))
    assert {
        "operators.audit_store.add",
        "merchants.store.add",
        "operators.tokens_store.add",
    } <= denied
    uses = {function: _find_worker_uses(function) for function in denied}
    assert {function: modules for function, modules in uses.items() if modules} == {}


def _find_worker_uses(function: str) -> set[str]:
    """Return the modules that call a store's function and run in a worker."""
    module, _, name = function.rpartition(".")
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    callers = {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and re.search(rf"\b{name}\(", ast.unparse(node.body))
    }
    uses = {
        user
        for user, names in _imported_names().items()
        if user != module and any(f"{module}.{n}" in names for n in {name, *callers})
    }
    return {user for user in uses if not NOT_IN_WORKERS.match(user)}


@cache
def _imported_names() -> dict[str, set[str]]:
    """Return the full names that each module uses from its imports."""
    names: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        modules: dict[str, str] = {}
        uses = names.setdefault(".".join(path.relative_to(PACKAGE).with_suffix("").parts), set())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("payintent."):
                parent = (node.module or "").removeprefix("payintent.")
                for name in node.names:
                    modules[name.asname or name.name] = f"{parent}.{name.name}"
                    uses.add(f"{parent}.{name.name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                uses.add(f"{modules.get(node.value.id)}.{node.attr}")
    return names


ATTACKS = [
    "UPDATE audit SET who = 'nobody'",
    "DELETE FROM audit",
    "TRUNCATE audit",
    "TRUNCATE audit CASCADE",
    "MERGE INTO audit USING audit b ON audit.id = b.id WHEN MATCHED THEN DELETE",
    "DROP TABLE audit",
    "ALTER TABLE audit DISABLE TRIGGER audit_append_only",
    "ALTER TABLE audit RENAME TO audit_of_before",
    "DROP TRIGGER audit_append_only ON audit",
    "CREATE RULE nothing AS ON INSERT TO audit DO INSTEAD NOTHING",
    "CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS ''",
    "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql RETURN now()",
    "CREATE TABLE public.mine (id int)",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql RETURN 1",
    "SET session_replication_role = replica",
    f"SET ROLE {OWNER}",
    "COPY audit TO PROGRAM 'cat'",
]


@pytest.mark.parametrize("role", RUNNING)
async def test_no_runtime_role_can_change_the_audit_log(roles: dict[str, str], role: str) -> None:
    connection = await asyncpg.connect(roles[role])
    try:
        await connection.execute("SET default_transaction_read_only = off")
        # If the role has some of these privileges, PostgreSQL only warns.
        with suppress(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"GRANT ALL ON audit TO {role}")
        successful_attacks = []
        for attack in ATTACKS:
            with suppress(asyncpg.InsufficientPrivilegeError):
                await connection.execute(attack)
                successful_attacks.append(attack)
        assert successful_attacks == []
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "change", ["UPDATE audit SET who = ''", "DELETE FROM audit", "TRUNCATE audit"]
)
async def test_a_trigger_prevents_the_owner_from_changing_the_audit_log(
    roles: dict[str, str], change: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="only ever added to"):
        await run(roles[OWNER], change)


async def test_doctor_warns_if_a_role_can_change_the_audit_log(
    roles: dict[str, str], settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = {}
    for role in ("payintent_api", OWNER):
        for sandbox in (False, True):
            changes = {"database_url": roles[role], "sandbox": sandbox}
            service = await open_service(settings.model_copy(update=changes))
            try:
                await doctor._check_privileges(doctor._Report(), service)
            finally:
                await service.close()
            outputs[role, sandbox] = capsys.readouterr().out
    warnings = {key for key, text in outputs.items() if "WARN" in text}
    assert all("can change the audit log" in outputs[key] for key in warnings)
    assert warnings == {(OWNER, False)}


async def test_every_table_is_listed_in_the_grants(roles: dict[str, str]) -> None:
    grants = re.sub(r"--.*", "", statements("grants"))
    words = set(re.findall(r"\w+", grants))
    connection = await asyncpg.connect(roles[OWNER])
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    await connection.close()
    assert {row["tablename"] for row in tables} - words == set(), "add the table to the grants"


async def test_api_and_worker_can_use_a_new_table_before_the_grants_are_repeated(
    roles: dict[str, str],
) -> None:
    await run(roles[OWNER], "CREATE TABLE of_tomorrow (id bigint GENERATED ALWAYS AS IDENTITY)")
    try:
        for role in ("payintent_api", "payintent_worker"):
            await run(roles[role], "INSERT INTO of_tomorrow DEFAULT VALUES")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await run(roles[role], "TRUNCATE of_tomorrow")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await run(roles["payintent_read"], "SELECT * FROM of_tomorrow")
    finally:
        await run(roles[OWNER], "DROP TABLE of_tomorrow")
    await run(roles[OWNER], statements("grants"))


async def test_the_read_role_cannot_read_secrets_digests_checkouts_or_buyers(
    roles: dict[str, str],
) -> None:
    columns = """
        SELECT c.table_name || '.' || c.column_name AS name
        FROM information_schema.columns c
        WHERE c.table_schema = 'public' AND has_column_privilege(
            'payintent_read', 'public.' || c.table_name, c.column_name, 'SELECT'
        )
    """
    connection = await asyncpg.connect(roles[OWNER])
    readable = {row["name"] for row in await connection.fetch(columns)}
    await connection.close()
    private = re.compile(
        r"sealed|digest|pepper|checkout|email|payer|metadata|body|answer|_url$"
        r"|destination|money_case\.subject$|\.(note|reason)$"
    )
    assert {item for item in readable if private.search(item)} == set()
    tables = {item.partition(".")[0] for item in readable}
    assert not tables & {"api_key", "operator_token", "callback_secret", "callback", "checkout"}
    assert {"payment.status", "audit.who", "money_case.kind"} <= readable


async def test_the_read_role_can_run_the_documented_monitoring_query(
    roles: dict[str, str],
) -> None:
    queries = blocks(page("docs/operate/go-live.md"), "sql")
    [query] = [query for query in queries if "example: watch" in query]
    await run(roles["payintent_read"], query)


async def test_the_worker_role_cannot_read_keys_tokens_or_the_audit_log(
    roles: dict[str, str],
) -> None:
    for table in ("api_key", "operator_token", "audit"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await run(roles["payintent_worker"], f"SELECT FROM {table}")


async def test_no_function_runs_with_the_rights_of_its_owner(roles: dict[str, str]) -> None:
    query = "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"
    connection = await asyncpg.connect(roles[OWNER])
    assert await connection.fetch(query) == []
    await connection.close()
