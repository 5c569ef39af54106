"""Use the MCP server with the official client; print the results as JSON.

Arguments: the service's URL, a live key, the id of a paid payment, a denied buyer, a test key.
"""

import asyncio
import json
import os
import sys
import uuid
from typing import Any

from mcp import Client, StdioServerParameters


def server(base: str, key: str, *options: str) -> Client:
    command = ["-m", "payintent_mcp", "--base-url", base, *options]
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
    return Client(
        StdioServerParameters(
            command=sys.executable, args=command, env=environment | {"PAYINTENT_API_KEY": key}
        )
    )


async def use(client: Client, tool: str, **arguments: object) -> Any:
    """Call a tool; return its result, or the text of its error."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        return " ".join(part.text for part in result.content if part.type == "text")
    return result.structured_content


async def tools_of(client: Client) -> list[dict[str, Any]]:
    return [tool.model_dump(mode="json") for tool in (await client.list_tools()).tools]


async def trade(client: Client, paid: str, denied_payer: str) -> dict[str, Any]:
    """Create, read, list, cancel and refund payments; repeat some requests with the same key."""
    buyer = {"currency": "THB", "payer_uid": "buyer-17", "metadata": {"order_id": "A-1009"}}
    key = str(uuid.uuid4())
    created = await use(client, "create_payment", amount="1590.00", idempotency_key=key, **buyer)
    repeated = await use(client, "create_payment", amount="1590.00", idempotency_key=key, **buyer)
    assert repeated["id"] == created["id"]
    denied_request = {"amount": "1.00", "currency": "THB", "payer_uid": denied_payer}
    denied = await use(
        client, "create_payment", idempotency_key=str(uuid.uuid4()), **denied_request
    )
    payment = await use(client, "get_payment", payment_id=created["id"])
    since = payment["created_at"]
    payments = await use(client, "list_payments", status="PENDING", created_from=since)
    cancelled = await use(client, "cancel_payment", payment_id=created["id"])
    second_cancellation = await use(client, "cancel_payment", payment_id=created["id"])
    request = {"payment_id": paid, "amount": "90.00", "idempotency_key": str(uuid.uuid4())}
    refund = await use(client, "create_refund", **request)
    assert (await use(client, "create_refund", **request))["id"] == refund["id"]
    return {
        "created": created["id"],
        "denied": denied["fds"]["code"],
        "amount": payment["amount"],
        "order": payment["metadata"]["order_id"],
        "listed": [item["id"] for item in payments["data"]],
        "cancelled": cancelled["status"],
        "again": second_cancellation,
        "refund": refund["id"],
        "refunded": refund["amount"],
    }


async def refusals(client: Client, paid: str) -> dict[str, Any]:
    """Return the errors of requests that must fail."""
    key = str(uuid.uuid4())
    return {
        "all by mistake": await use(client, "create_refund", payment_id=paid, idempotency_key=key),
        "without a key": await use(client, "create_refund", payment_id=paid, amount="1.00"),
        "no such payment": await use(client, "get_payment", payment_id="pay_" + "0" * 22),
        "not a time": await use(client, "list_payments", created_from="yesterday"),
        "another path": await use(client, "get_payment", payment_id="../events"),
    }


async def main(base: str, key: str, paid: str, denied_payer: str, test_key: str) -> None:
    async with server(base, key, "--write", "--live") as live:
        instructions = {"live": live.instructions}
        actions = await trade(live, paid, denied_payer)
        messages = await refusals(live, paid)
        tools = {"live": await tools_of(live)}
    async with server(base, test_key) as reader:
        instructions["read"] = reader.instructions
        tools["read"] = await tools_of(reader)
        messages["read only"] = await use(reader, "cancel_payment", payment_id=paid)
        messages["a live payment"] = await use(reader, "get_payment", payment_id=paid)
    async with server(base, test_key, "--write") as writer:
        tools["write"] = await tools_of(writer)
        clock = await use(writer, "advance_test_clock", seconds=60)
    output = {"done": actions, "refused": messages, "tools": tools, "instructions": instructions}
    print(json.dumps(output | {"clock": clock}))


asyncio.run(main(*sys.argv[1:]))
