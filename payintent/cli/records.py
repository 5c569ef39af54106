"""Commands for the audit log and the key ring."""

import typer

from payintent.cli.common import Json, Limit, Why, print_record, print_table, run_as_operator
from payintent.operations.audit_log import ListAuditEntries
from payintent.operations.keyring import RotateKeyring, ShowKeyring

audit = typer.Typer(no_args_is_help=True, help="Who changed what, and why.")
keyring = typer.Typer(no_args_is_help=True, help="The keys that secrets are sealed with.")


@audit.command("list")
def list_audit(
    merchant: int | None = typer.Option(None, help="About one merchant."),
    of: str | None = typer.Option(None, help="Of a subject, `tax`, or an action, `tax.set`."),
    limit: int = Limit,
    as_json: bool = Json,
) -> None:
    """List changes, newest first."""
    columns = ("at", "who", "action", "merchant_id", "details", "why")
    print_table(
        run_as_operator(ListAuditEntries(merchant_id=merchant, of=of, limit=limit)),
        columns,
        as_json=as_json,
    )


@keyring.command("show")
def show_keyring(as_json: bool = Json) -> None:
    """List the keys that have written; one that is not retired must stay in every ring."""
    columns = ("name", "mark", "since", "retired_at")
    print_table(run_as_operator(ShowKeyring()), columns, as_json=as_json)


@keyring.command()
def rotate(why: str = Why, as_json: bool = Json) -> None:
    """Seal every secret anew under the first key of the ring, so that the others can go."""
    print_record(run_as_operator(RotateKeyring(), why), as_json=as_json)
