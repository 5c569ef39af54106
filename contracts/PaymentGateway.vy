# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Payment gateway
@license Apache-2.0
@notice Forwards a payment to one receiver in the same call, and writes down what it was for.
@dev Nobody owns it, nothing in it changes, and it holds nothing: receiver and tokens are fixed at
     deployment, and others are another deployment. It does not know which amount or token is
     expected of a uuid; whoever reads its events judges that. The token zero is the native coin.
     Never audited.
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

# The smallest amount of each token that is taken, in its smallest unit; 0 for all other tokens:
# without a list, anybody could write payments in a worthless token of his own.
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
    @param receiver_ Whom every payment goes to.
    @param tokens What is taken.
    @param minimums The smallest amount of each, in the same order.
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
    @notice Pay a bill exactly once.
    @dev The key of a payment holds token and amount too: whoever copies a uuid from the mempool can
         neither block it with dust nor make it fail without paying the whole bill. "already paid"
         comes before the deadline, so that a second click never looks like a payment that failed.
    @param uuid The bill.
    @param token What is paid with; zero for the native coin, which is then sent along.
    @param amount How much, in the token's smallest unit; the receiver gets exactly this or nothing.
    @param deadline The last second, of the chain's clock, at which this may happen.
    """
    minimum: uint256 = self.minimum[token]
    assert minimum != 0, "token"
    assert amount >= minimum, "amount"
    key: bytes32 = self._payment_key(uuid, token, amount)
    assert not self._paid[key], "already paid"
    assert block.timestamp <= deadline, "expired"
    # His own coins would come back to him in this very call.
    assert msg.sender != receiver, "payer"
    self._paid[key] = True
    self._move(token, receiver, amount)
    log Paid(uuid=uuid, payer=msg.sender, token=token, amount=amount, receiver=receiver)


@external
@payable
@nonreentrant
def refund(uuid: bytes16, refund_id: bytes16, token: address, to: address, amount: uint256):
    """
    @notice Give money back, and write down what for.
    @dev Open to anybody, since it spends only the caller's funds: whoever reads the event looks at
         its sender. A refund that is sent again after a crash reverts, and is never paid twice.
    @param uuid The bill.
    @param refund_id The refund; a sender can use it once.
    @param token What is given back; zero for the native coin, which is then sent along.
    @param to Who gets it: not the sender himself, nor this contract.
    @param amount How much, in the token's smallest unit.
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
    @notice Send to the receiver what got here by mistake; open to anybody.
    @param token Any token, listed or not; zero for coins that were forced upon this contract.
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
    @notice Tell whether exactly this was paid.
    @param uuid The bill.
    @param token What it was to be paid with.
    @param amount How much, in the token's smallest unit.
    """
    return self._paid[self._payment_key(uuid, token, amount)]


@internal
@payable
def _move(token: address, to: address, amount: uint256):
    """
    @dev Move the caller's funds, all of them or none. Some tokens return nothing at all, and some
         can take a fee from tomorrow on: what counts is how much the balance has grown.
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
