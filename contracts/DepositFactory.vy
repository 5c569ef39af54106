# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Deposit factory
@license Apache-2.0
@notice Derives one deposit address per payment, and sweeps deposits to the receiver.
@dev A deposit address is the CREATE2 address of a minimal proxy (EIP-1167) of the forwarder, with the
     payment's uuid as salt. It can receive tokens before the proxy exists; the first sweep deploys
     it. There is no owner and no storage. Anyone can sweep, because deposits can only go to the
     forwarder's receiver. Never audited.
"""

interface Forwarder:
    def receiver() -> address: view
    def flush(token: address) -> uint256: nonpayable


event Swept:
    uuid: indexed(bytes16)
    token: indexed(address)
    deposit_address: indexed(address)
    amount: uint256


event SweepFailed:
    uuid: indexed(bytes16)
    token: indexed(address)
    deposit_address: indexed(address)


SWEEPS_MAX: constant(uint256) = 200

forwarder: public(immutable(address))


@deploy
def __init__(forwarder_: address):
    """
    @param forwarder_ The deployed DepositForwarder that each proxy calls.
    """
    assert staticcall Forwarder(forwarder_).receiver() != empty(address), "forwarder"
    forwarder = forwarder_


@external
@view
def address_of(uuid: bytes16) -> address:
    """
    @notice Return the deposit address of a payment, whether its proxy exists or not.
    @param uuid The payment's uuid.
    """
    return self._address_of(uuid)


@external
def sweep(uuid: bytes16, token: address):
    """
    @notice Send a deposit to the receiver. Reverts with the reason if the deposit cannot be sent.
    @param uuid The payment's uuid.
    @param token The token; zero for the native coin.
    """
    deposit_address: address = self._deploy(uuid)
    amount: uint256 = extcall Forwarder(deposit_address).flush(token)
    log Swept(uuid=uuid, token=token, deposit_address=deposit_address, amount=amount)


@external
def sweep_many(uuids: DynArray[bytes16, SWEEPS_MAX], token: address):
    """
    @notice Send several deposits to the receiver. A deposit that cannot be sent, for example from a
            blocked address, is logged and does not stop the batch.
    @param uuids The payments' uuids.
    @param token The token; zero for the native coin.
    """
    for uuid: bytes16 in uuids:
        deposit_address: address = self._deploy(uuid)
        success: bool = False
        response: Bytes[32] = b""
        success, response = raw_call(
            deposit_address,
            abi_encode(token, method_id=method_id("flush(address)")),
            max_outsize=32,
            revert_on_failure=False,
        )
        if success:
            amount: uint256 = convert(response, uint256)
            log Swept(uuid=uuid, token=token, deposit_address=deposit_address, amount=amount)
        else:
            log SweepFailed(uuid=uuid, token=token, deposit_address=deposit_address)


@internal
def _deploy(uuid: bytes16) -> address:
    """
    @dev Deploy the proxy of a payment if it does not exist.
    """
    deposit_address: address = self._address_of(uuid)
    if deposit_address.is_contract:
        return deposit_address
    return create_minimal_proxy_to(forwarder, salt=convert(uuid, bytes32))


@internal
@view
def _address_of(uuid: bytes16) -> address:
    init_code_hash: bytes32 = keccak256(
        concat(
            x"602d3d8160093d39f3363d3d373d3d3d363d73",
            convert(forwarder, bytes20),
            x"5af43d82803e903d91602b57fd5bf3",
        )
    )
    digest: bytes32 = keccak256(
        concat(0xff, convert(self, bytes20), convert(uuid, bytes32), init_code_hash)
    )
    return convert(convert(digest, uint256) & convert(max_value(uint160), uint256), address)
