# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Deposit forwarder
@license Apache-2.0
@notice The code of every deposit address. It forwards everything that arrives to one receiver.
@dev DepositFactory deploys minimal proxies (EIP-1167) of this contract. The receiver is part of the
     code, so all proxies share it. There is no owner and no storage, and nothing can be changed.
     There is no list of tokens: any token that arrives can be forwarded. Never audited.
"""

interface Token:
    def transfer(to: address, amount: uint256) -> bool: nonpayable
    def balanceOf(owner: address) -> uint256: view


NATIVE: constant(address) = empty(address)

receiver: public(immutable(address))


@deploy
def __init__(receiver_: address):
    """
    @param receiver_ The only account to which money can be flushed.
    """
    assert receiver_ not in [empty(address), self], "receiver"
    receiver = receiver_


@external
@payable
def __default__():
    """
    @notice Accept native coins, which `flush` forwards.
    """
    pass


@external
def flush(token: address) -> uint256:
    """
    @notice Send the whole balance of a token to the receiver. Anyone can call it.
    @dev A reentrant call can only flush again, so no lock is needed.
    @param token The token; zero for the native coin.
    @return The amount sent. If the token charges a fee, the receiver gets less.
    """
    amount: uint256 = self.balance
    if token != NATIVE:
        amount = staticcall Token(token).balanceOf(self)
    assert amount != 0, "nothing"
    if token == NATIVE:
        raw_call(receiver, b"", value=amount)
    else:
        assert extcall Token(token).transfer(receiver, amount, default_return_value=True), "transfer"
    return amount


@external
@payable
def execute(to: address, data: Bytes[1024], coins: uint256):
    """
    @notice Call a contract from this address, for example to recover an NFT. Only the receiver can call it.
    @param to The contract to call.
    @param data The call data.
    @param coins The native coins to send, from this address or from the call.
    """
    assert msg.sender == receiver, "receiver"
    raw_call(to, data, value=coins)
