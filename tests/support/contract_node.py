"""A node with contracts at addresses that the test chooses, on any chain."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import SecretStr

from payintent.runtime.settings import Settings
from payintent_sandbox.chains.contracts import DEPOSIT_FACTORY, DEPOSIT_FORWARDER, GATEWAY, load
from payintent_sandbox.chains.deploy import PLANS
from tests.support.contracts import CONTRACT, FACTORY, FORWARDER, RECEIVER

_LOOK_S = 0.01
_HASH = f"0x{64 * 'a'}"
_BLOCK = {"number": "0x0", "hash": _HASH, "parentHash": _HASH, "timestamp": "0x6a000000"}


def deployed_code(receiver: str, contract: str = GATEWAY) -> str:
    """Return our contract's deployed code, which ends with its receiver."""
    return load(contract).runtime_bytecode + receiver.removeprefix("0x").lower().rjust(64, "0")


def _all_codes() -> dict[str, str]:
    return {
        CONTRACT: deployed_code(RECEIVER),
        FACTORY: deployed_code(FORWARDER, DEPOSIT_FACTORY),
        FORWARDER: deployed_code(RECEIVER, DEPOSIT_FORWARDER),
    }


@contextmanager
def contract_node(codes: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serve code by lower-case address, by default our contracts' code; yield the node's URL.

    The URL's path is the chain's network id. The response to any call is the last word of the code,
    which is the receiver in our contract's code.
    """
    contract_codes = codes if codes is not None else _all_codes()

    class Node(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            network_id = int(self.path.rpartition("/")[2])
            if isinstance(document, list):
                response: Any = [_said(call, network_id, contract_codes) for call in document]
            else:
                response = _said(document, network_id, contract_codes)
            body = json.dumps(response).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Suppress the server's log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Node) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def with_node(settings: Settings, url: str) -> Settings:
    """Make a node the only endpoint of every chain."""
    urls = {f"rpc_{slug}": SecretStr(f"{url}/{plan.network_id}") for slug, plan in PLANS.items()}
    return settings.model_copy(update={"chain_any_endpoints": True, **urls})


def _said(call: dict[str, Any], network_id: int, codes: Mapping[str, str]) -> dict[str, Any]:
    params = call["params"]
    match call["method"]:
        case "eth_chainId":
            result: Any = hex(network_id)
        case "eth_getBlockByNumber":
            result = _BLOCK | ({"number": params[0]} if params[0].startswith("0x") else {})
        case "eth_getCode":
            result = codes.get(params[0], "0x")
        case _:
            result = f"0x{codes.get(params[0]['to'], '')[-64:]}"
    return {"jsonrpc": "2.0", "id": call["id"], "result": result}
