"""`payintent devchain`: commands that run only the development chains, and tools for testers.

Every `payintent --help` imports this module, so the commands are implemented in `devchain.py`.
"""

from typing import Annotated

import typer

from payintent_sandbox.chains.deploy import FUNDED_UNITS, PLANS

_COUNT_MAX = 10_000

app = typer.Typer(
    no_args_is_help=True,
    help="Run only the development chains, fund accounts, and mine or replace blocks.",
)
_Slug = Annotated[str, typer.Argument(help=", ".join(PLANS))]


@app.command()
def up(
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in this terminal until you press Ctrl-C.")
    ] = False,
) -> None:
    """Run only the chains, each with a contract, tokens and a buyer."""
    from payintent_sandbox.chains import devchain

    devchain.start(foreground=foreground)


@app.command()
def down() -> None:
    """Stop the chains that `up` has started; their state is kept."""
    from payintent_sandbox.chains import devchain

    devchain.stop()


@app.command("fund")
def fund_account(
    slug: _Slug,
    address: Annotated[str, typer.Argument(help="0x and 40 hex digits.")],
    units: Annotated[
        int, typer.Option(min=1, max=10**12, help="Amount of each coin and token, in whole units.")
    ] = FUNDED_UNITS,
    token: Annotated[
        str | None, typer.Option(help="Only this token, such as USDT. Default: coins and tokens.")
    ] = None,
) -> None:
    """Send coins and tokens to an account, or a token to a deposit address."""
    from payintent_sandbox.chains import devchain

    devchain.fund_account(slug, address, units, token)


@app.command()
def mine(
    slug: _Slug,
    count: Annotated[int, typer.Argument(min=1, max=_COUNT_MAX, help="Number of blocks.")] = 1,
) -> None:
    """Mine blocks on a chain immediately."""
    from payintent_sandbox.chains import devchain

    devchain.mine(slug, count)


@app.command()
def reorg(
    slug: _Slug,
    depth: Annotated[
        int, typer.Argument(min=1, max=_COUNT_MAX, help="Number of blocks to replace.")
    ],
) -> None:
    """Replace the last blocks with empty blocks; the old transactions are lost.

    A depth of more than two blocks also replaces the final block. The service then halts the chain,
    as it does for a real chain.
    """
    from payintent_sandbox.chains import devchain

    devchain.replace_blocks(slug, depth)
