# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Payment gateway
@license Apache-2.0
@notice Forwards each payment to one receiver in the same call, and emits an event that identifies it.
@dev The contract has no owner, cannot be changed and does not hold money. The receiver and the tokens
     are fixed at deployment; a different receiver or token requires a new deployment. The contract
     does not know which amount or token is expected for a uuid, so readers of its events must check
     both. The zero address as the token means the native coin. Never audited.
"""

interface Token:
    def transfer(to: address, amount: uint256) -> bool: nonpayable
    def transferFrom(sender: address, to: address, amount: uint256) -> bool: nonpayable
    def balanceOf(owner: address) -> uint256: view


event Paid:
    uuid: indexed(bytes16)
    payer: indexed(address)
    token: indexed(address)
    amount: uint256
    receiver: address


event Refunded:
    uuid: indexed(bytes16)
    refund_id: indexed(bytes16)
    token: indexed(address)
    amount: uint256
    to: address
    sender: address


TOKENS_MAX: constant(uint256) = 16
NATIVE: constant(address) = empty(address)

receiver: public(immutable(address))

# The minimum amount of each accepted token, in its smallest unit; 0 for all other tokens. Without
# this list, anyone could record payments in a worthless token of their own.
minimum: public(HashMap[address, uint256])

_paid: HashMap[bytes32, bool]
_refunded: HashMap[bytes32, bool]


@deploy
def __init__(
    receiver_: address,
    tokens: DynArray[address, TOKENS_MAX],
    minimums: DynArray[uint256, TOKENS_MAX],
):
    """
    @param receiver_ The recipient of every payment.
    @param tokens The accepted tokens.
    @param minimums The minimum amount of each token, in the same order.
    """
    assert receiver_ not in [empty(address), self], "receiver"
    assert len(tokens) != 0 and len(tokens) == len(minimums), "tokens"
    for i: uint256 in range(len(tokens), bound=TOKENS_MAX):
        assert tokens[i] == NATIVE or tokens[i].is_contract, "token"
        assert minimums[i] != 0 and self.minimum[tokens[i]] == 0, "minimum"
        self.minimum[tokens[i]] = minimums[i]
    receiver = receiver_


@external
@payable
@nonreentrant
def pay(uuid: bytes16, token: address, amount: uint256, deadline: uint256):
    """
    @notice Make a payment exactly once.
    @dev The key of a payment also contains the token and the amount. An attacker who copies a uuid
         from the mempool can therefore not block the payment with dust, and can make it fail only
         by paying the whole amount. "already paid" is checked before the deadline, so that a second
         click never looks like a failed payment.
    @param uuid The payment's uuid.
    @param token The token; zero for the native coin, which the caller sends with the call.
    @param amount The amount in the token's smallest unit. The receiver gets exactly this amount, or
           the call reverts.
    @param deadline The last block timestamp at which the payment is possible.
    """
    minimum: uint256 = self.minimum[token]
    assert minimum != 0, "token"
    assert amount >= minimum, "amount"
    key: bytes32 = self._payment_key(uuid, token, amount)
    assert not self._paid[key], "already paid"
    assert block.timestamp <= deadline, "expired"
    # The receiver's own coins would return to the receiver in this call.
    assert msg.sender != receiver, "payer"
    self._paid[key] = True
    self._move(token, receiver, amount)
    log Paid(uuid=uuid, payer=msg.sender, token=token, amount=amount, receiver=receiver)


@external
@payable
@nonreentrant
def refund(uuid: bytes16, refund_id: bytes16, token: address, to: address, amount: uint256):
    """
    @notice Refund money, and emit an event that identifies the refund.
    @dev Anyone can call it, because it spends only the caller's funds. Readers of the event must
         check its sender. A refund that is sent again after a crash reverts, so it is never paid twice.
    @param uuid The payment's uuid.
    @param refund_id The refund's id, which each sender can use once.
    @param token The token; zero for the native coin, which the caller sends with the call.
    @param to The recipient, which must be neither the sender nor this contract.
    @param amount The amount in the token's smallest unit.
    """
    assert self.minimum[token] != 0, "token"
    assert amount != 0, "amount"
    assert to not in [empty(address), self, msg.sender], "to"
    key: bytes32 = keccak256(abi_encode(msg.sender, refund_id))
    assert not self._refunded[key], "already refunded"
    self._refunded[key] = True
    self._move(token, to, amount)
    log Refunded(
        uuid=uuid, refund_id=refund_id, token=token, amount=amount, to=to, sender=msg.sender
    )


@external
@nonreentrant
def sweep(token: address):
    """
    @notice Send money that arrived here by mistake to the receiver. Anyone can call it.
    @param token Any token, accepted or not; zero for native coins that were forced into this contract.
    """
    amount: uint256 = self.balance
    if token != NATIVE:
        amount = staticcall Token(token).balanceOf(self)
    assert amount != 0, "nothing"
    if token == NATIVE:
        raw_call(receiver, b"", value=amount)
    else:
        assert extcall Token(token).transfer(receiver, amount, default_return_value=True), "transfer"


@external
@view
def is_paid(uuid: bytes16, token: address, amount: uint256) -> bool:
    """
    @notice Return whether exactly this payment was made.
    @param uuid The payment's uuid.
    @param token The token.
    @param amount The amount in the token's smallest unit.
    """
    return self._paid[self._payment_key(uuid, token, amount)]


@internal
@payable
def _move(token: address, to: address, amount: uint256):
    """
    @dev Transfer exactly the amount from the caller, or revert. Some tokens do not return a value, and
         some can start to charge a fee, so the change in the recipient's balance is checked.
    """
    if token == NATIVE:
        assert msg.value == amount, "value"
        raw_call(to, b"", value=amount)
        return
    assert msg.value == 0, "value"
    before: uint256 = staticcall Token(token).balanceOf(to)
    assert extcall Token(token).transferFrom(
        msg.sender, to, amount, default_return_value=True
    ), "transfer"
    assert staticcall Token(token).balanceOf(to) == before + amount, "inexact"


@internal
@pure
def _payment_key(uuid: bytes16, token: address, amount: uint256) -> bytes32:
    return keccak256(abi_encode(uuid, token, amount))
