"""Helpers for all commands: service access, actors, output and error messages."""

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import msgspec
import typer
from pydantic import ValidationError

from payintent.core import access as api_key
from payintent.core.errors import (
    InvalidTextError,
    LockTimeoutError,
    PermissionDeniedError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.db.hosts import NOT_READABLE, format_hosts
from payintent.gateways.packages import GatewayPackageError
from payintent.operators.operation import (
    TERMINAL_PREFIX,
    Actor,
    AnyOperation,
    ChangeOperation,
    to_json_value,
)
from payintent.operators.proposals_store import Proposal
from payintent.operators.submit import count_changes, describe
from payintent.runtime.encryption import EncryptionKeyError
from payintent.runtime.log import configure_logging
from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import UnusableAddressError, describe_problems
from payintent.runtime.tracing import TracingUnavailableError
from payintent.service import Service, open_service

if TYPE_CHECKING:
    from rich.table import Table


T = TypeVar("T")
#: File in `VAR_DIR` to which `payintent dev` writes the settings of the sandbox.
SANDBOX_ENV = "dev.env"
#: Environment variable with an operator token.
TOKEN_ENV = "PAYINTENT_OPERATOR_TOKEN"  # noqa: S105 - a name
#: Exit status if a second operator must approve the operation.
EXIT_PROPOSED = 3
#: Errors that end a command or prevent startup. Their messages are written for operators.
FATAL_ERRORS = (
    StorageUnavailableError,
    PermissionDeniedError,
    EncryptionKeyError,
    UnusableAddressError,
    GatewayPackageError,
    TracingUnavailableError,
)
_LINES_MAX = 20  # number of progress lines outside a terminal
_PIPE_COLUMNS = 240
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)  # the API time format
_UNWRAPPED_MAX = 36  # characters; fits an event id
_WRAPPED_MIN = 8
Json = typer.Option(False, "--json", help="Print JSON instead of a table.")
Why = typer.Option("", help="The reason, for the audit log; required outside the sandbox.")
Yes = typer.Option(
    False,
    "--yes",
    help="Do not ask for confirmation. Without a terminal, no confirmation is needed.",
)
DryRun = typer.Option(False, "--dry-run", help="Print the changes without making them.")


def load_settings() -> Settings:
    """Read the settings; print each problem and exit if they are invalid."""
    try:
        return read_settings()
    except ValidationError as error:
        fail("\npayintent: ".join(describe_problems(error)))


def read_settings() -> Settings:
    """Read the settings and configure logging. Raises `ValidationError`.

    If the environment has no secrets, the settings of a local sandbox are used.
    """
    settings = Settings(_env_file=_find_sandbox_file())  # pyright: ignore[reportCallIssue]
    configure_logging(settings.log_level)
    return settings


def _find_sandbox_file() -> Path | None:
    file = Path(os.environ.get("VAR_DIR", "var"), SANDBOX_ENV)
    if "PAYINTENT_PEPPER" in os.environ or not file.is_file():
        return None
    print(f"payintent: using the settings of the sandbox in {file}", file=sys.stderr)
    return file


def run_with_service(work: Callable[[Service], Awaitable[T]]) -> T:
    """Run `work` with a service. Expected errors end the command with status 1."""
    settings = load_settings()

    async def run() -> T:
        on_delay = partial(report_unavailable_database, settings.database_url)
        service = await open_service(settings, on_delay=on_delay)
        try:
            return await work(service)
        finally:
            await service.close()

    try:
        return asyncio.run(run())
    except RefusedError as refused:
        fail(refused.message)
    except FATAL_ERRORS as error:
        fail(str(error))
    except LockTimeoutError:
        fail("a concurrent change is in progress; try again")
    except InvalidTextError:
        fail("an argument is not valid Unicode")


def report_unavailable_database(url: str) -> None:
    """Print that the database is unavailable. The URL's password is not printed."""
    hosts = format_hosts(url)
    relation = ", whose address is" if hosts == NOT_READABLE else " at"
    print(f"payintent: waiting for the database{relation} {hosts} …", file=sys.stderr)


def run_as_operator(operation: AnyOperation[T], why: str = "") -> T:
    """Run an operation as the owner of the token in `TOKEN_ENV`, or as the terminal user.

    If the operation needs approval, print the proposal and exit with status 3.
    """
    result = _run_with_actor(
        lambda service, actor: service.submit(operation, actor, show_progress), why
    )
    if not isinstance(result, Proposal):
        return result
    from payintent.approvals.operations import make_proposal_view

    print_record(make_proposal_view(result), as_json="--json" in sys.argv)
    print("payintent: the operation needs approval by a second operator", file=sys.stderr)
    raise typer.Exit(EXIT_PROPOSED)


def submit_as_operator(
    work: Callable[
        [Service, Callable[[AnyOperation[Any]], Awaitable[Any]]],
        Awaitable[T],
    ],
    why: str,
) -> T:
    """Run `work`, which may submit several operations as the same actor."""
    return _run_with_actor(
        lambda service, actor: work(
            service, lambda operation: service.submit(operation, actor, show_progress)
        ),
        why,
    )


def describe_as_operator(operation: ChangeOperation[Any], why: str) -> list[str]:
    return _run_with_actor(
        lambda service, actor: describe(service.operation_context, operation, actor), why
    )


def count_changes_as_operator(operation: ChangeOperation[Any]) -> dict[str, object]:
    return _run_with_actor(
        lambda service, actor: count_changes(service.operation_context, operation, actor), ""
    )


def _run_with_actor(work: Callable[[Service, Actor], Awaitable[T]], why: str) -> T:
    async def run(service: Service) -> T:
        return await work(service, await _find_actor(service, why))

    return run_with_service(run)


async def _find_actor(service: Service, why: str) -> Actor:
    """Return the actor. The name of a terminal user is not verified."""
    token = os.environ.get(TOKEN_ENV)
    if not token:
        return Actor(f"{TERMINAL_PREFIX}{_get_user_name()}", why)
    # Imported only if there is a token, because these modules import the web framework.
    from payintent.http.address_limits import read_bearer_key
    from payintent.operators.access import check_operator_token

    try:
        key = read_bearer_key({"authorization": f"Bearer {token}"}, api_key.OPERATOR)
        operator = await check_operator_token(service.database, service.encryption, key)
    except RefusedError as refused:
        raise RefusedError(
            refused.code,
            f"the token in {TOKEN_ENV} is invalid, revoked or expired",
        ) from refused
    return Actor(operator.name, why, operator.role)


def _get_user_name() -> str:
    """Return the user name; under sudo, the name of the original user."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def fail(message: str) -> NoReturn:
    print(f"payintent: {message}", file=sys.stderr)
    raise typer.Exit(1)


def print_table(rows: Sequence[object], columns: Iterable[str], *, as_json: bool) -> None:
    """Print records as a table with the given columns, or as a JSON list with all fields."""
    records = [to_json_value(row) for row in rows]
    if as_json:
        print_json(records)
        return
    from rich.console import Console

    names = list(columns)
    cells = [[_format_cell(row.get(name)) for name in names] for row in records]
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    console = Console(width=width, markup=False, emoji=False)
    console.print(_build_table([_format_title(name) for name in names], cells, console.width))


def _build_table(names: list[str], cells: list[list[str]], width: int) -> "Table":
    """Build a table. Only text columns wrap, unless the other columns do not fit."""
    from rich.table import Table

    longest_cells = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    is_unwrapped = [
        not any(" " in row[column] or len(row[column]) > _UNWRAPPED_MAX for row in cells)
        for column in range(len(names))
    ]
    needed_width = sum(
        length if no_wrap else _WRAPPED_MIN
        for length, no_wrap in zip(longest_cells, is_unwrapped, strict=True)
    )
    has_room = needed_width + 2 * len(names) <= width
    table = Table(box=None, pad_edge=False)
    for name, no_wrap in zip(names, is_unwrapped, strict=True):
        table.add_column(name, overflow="fold", no_wrap=no_wrap and has_room)
    for row in cells:
        table.add_row(*row)
    return table


def print_record(row: object, *, as_json: bool) -> None:
    """Print a record as a JSON object, or with one field per line."""
    fields: dict[str, Any] = to_json_value(row)
    if as_json:
        print_json(fields)
        return
    widest = max(len(name) for name in fields)
    for name, value in fields.items():
        print(f"{_format_title(name):{widest}}  {_format_cell(value)}".rstrip())


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())


def to_one_line(text: str) -> str:
    """Replace control characters, because untrusted text could manipulate the terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def wrap_at_terminal(line: str, indent: int) -> str:
    """Wrap a line at the terminal's width, indenting wrapped lines. Piped output is unchanged."""
    if not sys.stdout.isatty():
        return line
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns, 2 * indent)
    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_on_hyphens=False)


def _format_cell(value: object) -> str:
    """Format a value: lists with commas, booleans as yes or no, times to the second."""
    if isinstance(value, list):
        return ", ".join(_format_cell(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return " ".join(f"{name}={_format_cell(item)}" for name, item in fields.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and _TIME.fullmatch(value):
        return f"{value[:10]} {value[11:19]}Z"
    return "" if value is None else to_one_line(str(value))


def _format_title(name: str) -> str:
    return "merchant" if name == "merchant_id" else name.replace("_", " ")


def is_at_terminal() -> bool:
    return sys.stdin.isatty()


def confirm(action: str, changes: Sequence[str]) -> None:
    """Show the changes and ask for confirmation; exit with status 1 if the user declines."""
    print(f"payintent: {action}", file=sys.stderr)
    for line in changes:
        print(f"  {to_one_line(line)}", file=sys.stderr)
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        fail("nothing was changed")


@contextmanager
def show_progress(action: str, total: int) -> Generator[Callable[[int], None]]:
    """Show a progress bar in a terminal, or print progress lines elsewhere."""
    if not sys.stderr.isatty():
        yield _print_progress_lines(action, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(action), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(action, total=total)
        yield lambda count: progress.advance(task, count)


def _print_progress_lines(action: str, total: int) -> Callable[[int], None]:
    """Print the total, then a line after every 5 % of progress."""
    print(f"payintent: {action}: {total} rows", file=sys.stderr)
    finished_rows = printed_rows = 0

    def advance(count: int) -> None:
        nonlocal finished_rows, printed_rows
        finished_rows += count
        if finished_rows == total or finished_rows - printed_rows >= max(1, total // _LINES_MAX):
            printed_rows = finished_rows
            print(f"payintent: {action}: {finished_rows} of {total}", file=sys.stderr)

    return advance
