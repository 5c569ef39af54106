"""What all commands share: the service for one command, tables, JSON, and plain errors."""

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import msgspec
import typer
from pydantic import ValidationError

from payintent.address_checks import AddressUnusableError
from payintent.cli.progress import show_progress
from payintent.config import Settings
from payintent.domain.errors import (
    InvalidTextError,
    LockTimeoutError,
    PermissionDeniedError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.encryption import EncryptionKeyError
from payintent.gateways.packages import GatewayPackageError
from payintent.log import configure_logging
from payintent.operations.base import TERMINAL, Actor, AnyOperation, ChangeOperation
from payintent.operations.json_values import to_json_value
from payintent.service import Service, open_service
from payintent.settings_problems import problem_lines
from payintent.storage.database_hosts import NOT_READABLE, name_hosts
from payintent.storage.proposals import Proposal
from payintent.tracing import TracingUnavailableError

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")
#: What `payintent dev` writes into VAR_DIR, so that commands find the sandbox.
SANDBOX_ENV = "dev.env"
#: An operator's token: who acts is then its name, as at the operator's port.
TOKEN_ENV = "PAYINTENT_OPERATOR_TOKEN"  # noqa: S105 - a name
#: The exit status of a command whose operation waits for another person.
PROPOSED = 3
#: What ends a command or keeps a process from starting; the message is for the operator.
STOPPING = (
    StorageUnavailableError,
    PermissionDeniedError,
    EncryptionKeyError,
    AddressUnusableError,
    GatewayPackageError,
    TracingUnavailableError,
)
_PIPE_COLUMNS = 240
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)  # as on the wire
_WHOLE_MAX = 36  # characters, such as an event's id
_FOLDED_MIN = 8
Json = typer.Option(False, "--json", help="Print JSON instead of a table.")
Why = typer.Option("", help="The reason, for the audit log; needed outside the sandbox.")


def settings() -> Settings:
    """Read the settings; ends the command with a line for each that is wrong.

    Without secrets in the environment a sandbox that was started here lends its own.
    """
    try:
        return read_settings()
    except ValidationError as error:
        fail("\npayintent: ".join(problem_lines(error)))


def read_settings() -> Settings:
    """Read the settings and set up logging (`ValidationError`)."""
    found = Settings(_env_file=_sandbox_file())  # pyright: ignore[reportCallIssue]
    configure_logging(found.log_level)
    return found


def _sandbox_file() -> Path | None:
    file = Path(os.environ.get("VAR_DIR", "var"), SANDBOX_ENV)
    if "PAYINTENT_PEPPER" in os.environ or not file.is_file():
        return None
    print(f"payintent: with the settings of the sandbox in {file}", file=sys.stderr)
    return file


def with_service(work: Callable[[Service], Awaitable[T]]) -> T:
    """Run one piece of work on the service; what we decline ends the command with status 1."""
    chosen = settings()

    async def run() -> T:
        service = await open_service(chosen, notice=partial(say_waiting, chosen.database_url))
        try:
            return await work(service)
        finally:
            await service.close()

    try:
        return asyncio.run(run())
    except RefusedError as refused:
        fail(refused.message)
    except STOPPING as error:
        fail(str(error))
    except LockTimeoutError:
        fail("this is being changed elsewhere at the moment; try again")
    except InvalidTextError:
        fail("an argument is not valid Unicode")


def say_waiting(url: str) -> None:
    """Say on standard error which database is waited for, without its password."""
    place = name_hosts(url)
    at = "whose address is" if place == NOT_READABLE else "at"
    print(f"payintent: waiting for the database {at} {place} …", file=sys.stderr)


def run_as_operator(operation: AnyOperation[T], why: str = "") -> T:
    """Do one operation as the person at this terminal, or whose token the environment has.

    Where another person must approve, shows the proposal and ends the command with status 3.
    """

    async def work(service: Service) -> T | Proposal:
        return await service.submit(operation, await _actor(service, why), show_progress)

    result = with_service(work)
    if not isinstance(result, Proposal):
        return result
    from payintent.operations.approvals import proposal_view

    print_record(proposal_view(result), as_json="--json" in sys.argv)
    print("payintent: waits for another person's approval", file=sys.stderr)
    raise typer.Exit(PROPOSED)


def submit_as_operator(
    work: Callable[
        [Service, Callable[[AnyOperation[Any]], Awaitable[Any]]],
        Awaitable[T],
    ],
    why: str,
) -> T:
    """Run work that submits several operations as the person at this terminal, or of the token."""

    async def with_actor(service: Service) -> T:
        actor = await _actor(service, why)
        return await work(
            service, lambda operation: service.submit(operation, actor, show_progress)
        )

    return with_service(with_actor)


def describe_as_operator(operation: ChangeOperation[Any], why: str) -> list[str]:
    """Describe what an operation would change; ends the command where it would be refused."""

    async def work(service: Service) -> list[str]:
        return await service.describe(operation, await _actor(service, why))

    return with_service(work)


def foresee_as_operator(operation: ChangeOperation[Any]) -> dict[str, object]:
    async def work(service: Service) -> dict[str, object]:
        return await service.foresee(operation, await _actor(service, ""))

    return with_service(work)


async def _actor(service: Service, why: str) -> Actor:
    """Say who does it: a token's name is proven, a terminal's user is only what the shell says."""
    token = os.environ.get(TOKEN_ENV)
    if not token:
        return Actor(f"{TERMINAL}{person()}", why)
    from payintent.api import authentication  # only with a token: it brings the web framework along

    headers = {"authorization": f"Bearer {token}"}
    try:
        operator = await authentication.authenticate_operator(
            service.database, service.encryption, headers
        )
    except RefusedError as refused:
        raise RefusedError(
            refused.code,
            f"{TOKEN_ENV} is no operator's token, or one that was revoked or has expired",
        ) from refused
    return Actor(operator.name, why, operator.role)


def person() -> str:
    """Name who typed this; under sudo the one who did."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def fail(message: str) -> NoReturn:
    """End the command with one line on standard error."""
    print(f"payintent: {message}", file=sys.stderr)
    raise typer.Exit(1)


def print_table(rows: Sequence[object], columns: Iterable[str], *, as_json: bool) -> None:
    """Print records as a table, or as a JSON list of all their fields."""
    records = [to_json_value(row) for row in rows]
    if as_json:
        print_json(records)
        return
    from rich.console import Console

    names = list(columns)
    cells = [[_cell(row.get(name)) for name in names] for row in records]
    # Whole values for whoever reads a file or a pipe; a terminal folds at its own width.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    console.print(_table([_title(name) for name in names], cells, console.width))


def _table(names: list[str], cells: list[list[str]], width: int) -> "Table":
    """Lay out a table in which times, numbers and words stay whole, as long as there is room."""
    from rich.table import Table

    longest = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    whole = [
        not any(" " in row[at] or len(row[at]) > _WHOLE_MAX for row in cells)
        for at in range(len(names))
    ]
    taken = sum(n if kept else _FOLDED_MIN for n, kept in zip(longest, whole, strict=True))
    roomy = taken + 2 * len(names) <= width
    table = Table(box=None, pad_edge=False)
    for name, kept in zip(names, whole, strict=True):
        table.add_column(name, overflow="fold", no_wrap=kept and roomy)
    for row in cells:
        table.add_row(*row)
    return table


def print_record(row: object, *, as_json: bool) -> None:
    """Print one record, a line for each field, or as a JSON object."""
    fields: dict[str, Any] = to_json_value(row)
    if as_json:
        print_json(fields)
        return
    widest = max(len(name) for name in fields)
    for name, value in fields.items():
        print(f"{_title(name):{widest}}  {_cell(value)}".rstrip())


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())


def one_line(text: str) -> str:
    """Write a text of others on one line, without what could steer a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def wrap_at_terminal(line: str, indent: int) -> str:
    """Wrap a line at the terminal's width, further lines indented; a pipe gets it whole."""
    if not sys.stdout.isatty():
        return line
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns, 2 * indent)
    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_on_hyphens=False)


def _cell(value: object) -> str:
    """Write a value for people: lists with commas, yes and no, times to the second."""
    if isinstance(value, list):
        return ", ".join(_cell(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return " ".join(f"{name}={_cell(item)}" for name, item in fields.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and _TIME.fullmatch(value):
        return f"{value[:10]} {value[11:19]}Z"
    return "" if value is None else str(value)


def _title(name: str) -> str:
    return "merchant" if name == "merchant_id" else name.replace("_", " ")
