"""`payintent chain …`: our contracts, the tokens they take, and how far each chain was read."""

from typing import Any

import typer

from payintent.cli.common import Json, Why, print_record, print_table, run_as_operator
from payintent.evm.chain_reader import Finality
from payintent.operations.chains import (
    AddContract,
    ChainView,
    ListChains,
    ResumeChain,
    RetireContract,
    SetChain,
    SetToken,
)
from payintent.operations.json_values import to_json_value

app = typer.Typer(
    no_args_is_help=True, help="Chains: contracts, tokens, finality, and how far each was read."
)
_Chain = typer.Argument(help="Such as ethereum.")
_COLUMNS = ("slug", "network_id", "finality", "confirmations", "block", "head", "halted")
_CONTRACT = ("account_id", "chain", "address", "receiver", "deployed_block", "current")
_TOKEN = ("chain", "symbol", "address", "decimals", "approve_zero_first", "minimum", "enabled")


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List chains and how far each was read, our contracts, and tokens."""
    chains = run_as_operator(ListChains())
    print_table(chains, _COLUMNS, as_json=as_json)
    if not as_json:
        _show_parts(chains)


@app.command("set")
def set_chain(
    chain: str = _Chain,
    finality: Finality | None = typer.Option(
        None, help="Who says which blocks are final: the nodes, or a number of confirmations."
    ),
    confirmations: int | None = typer.Option(
        None, help="How many blocks on a block make it final."
    ),
    instant_finality: bool | None = typer.Option(
        None,
        help="Believe nodes that call their latest block final: blocks are final as they appear.",
    ),
    public_rpc_url: list[str] = typer.Option(
        [], help="An endpoint for wallets, never one of the watcher's; repeat it."
    ),
    explorer_url: list[str] = typer.Option([], help="A block explorer for wallets; repeat it."),
    refunder: str | None = typer.Option(None, help="The account that sends refunds from now on."),
    refund_approval_above: str | None = typer.Option(
        None, help="So many tokens a merchant may give back in a day without a second person."
    ),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Say when blocks are final, what wallets are told, who refunds; what is not given stays."""
    chosen: Any = finality and finality.value
    operation = SetChain(
        chain=chain,
        finality=chosen,
        confirmations=confirmations,
        instant_finality=instant_finality,
        public_rpc_urls=_given(public_rpc_url),
        explorer_urls=_given(explorer_url),
        refunder=refunder,
        refund_approval_above=refund_approval_above,
    )
    fields: dict[str, Any] = to_json_value(run_as_operator(operation, why))
    parts = () if as_json else ("contracts", "tokens")
    shown = {name: value for name, value in fields.items() if name not in parts}
    print_record(shown, as_json=as_json)


@app.command()
def set_token(
    chain: str = _Chain,
    symbol: str = typer.Argument(help="Such as USDT."),
    address: str | None = typer.Option(None, help="The token's contract."),
    decimals: int | None = typer.Option(None, help="As the token itself says."),
    approve_zero_first: bool | None = typer.Option(
        None, help="An allowance must be zero before it is changed."
    ),
    minimum: int | None = typer.Option(None, help="In the smallest unit, as our contract has it."),
    enabled: bool | None = typer.Option(
        None, "--enabled/--disabled", help="Whether buyers are offered it."
    ),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Say where a token is and whether it is taken; what is not given stays."""
    operation = SetToken(
        chain=chain,
        symbol=symbol,
        address=address,
        decimals=decimals,
        approve_zero_first=approve_zero_first,
        minimum=minimum,
        enabled=enabled,
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command()
def add_contract(
    chain: str = _Chain,
    address: str = typer.Argument(help="Where it was deployed."),
    receiver: str = typer.Option(..., help="The receiver that it was deployed with."),
    deployed_block: int = typer.Option(
        ..., help="The block it was deployed in; the chain is read from there."
    ),
    merchant: int | None = typer.Option(None, help="Whose it is; left out: the platform's."),
    name: str = typer.Option("", help="What it is for."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Take payments through a contract that was deployed."""
    operation = AddContract(
        chain=chain,
        address=address,
        receiver=receiver,
        deployed_block=deployed_block,
        merchant_id=merchant,
        name=name,
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command()
def retire_contract(
    account_id: int = typer.Argument(help="The contract's account."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Offer a contract no more; it stays watched."""
    print_record(run_as_operator(RetireContract(account_id=account_id), why), as_json=as_json)


@app.command()
def resume(
    chain: str = _Chain,
    block: int | None = typer.Option(None, help="The last block that counts as read."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Read a halted chain again, from a block that you have chosen or from where it stood."""
    print_record(run_as_operator(ResumeChain(chain=chain, block=block), why), as_json=as_json)


def _show_parts(chains: list[ChainView]) -> None:
    print()
    print_table([one for chain in chains for one in chain.contracts], _CONTRACT, as_json=False)
    print()
    print_table([one for chain in chains for one in chain.tokens], _TOKEN, as_json=False)


def _given(urls: list[str]) -> list[str] | None:
    """Give what was named; an empty one clears them all."""
    return [one for one in urls if one] if urls else None
