# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title A token that misbehaves
@license Apache-2.0
@notice For tests only: anyone can mint tokens and configure the token's behaviour.
"""

BASIS: constant(uint256) = 10_000

balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])
inner_calls: public(uint256)  # the number of successful calls from inside a transfer

_answer: uint256
_arriving_basis_points: uint256
_target: address
_value: uint256
_data: Bytes[512]


@deploy
def __init__():
    self._answer = 1
    self._arriving_basis_points = BASIS


@external
@payable
def fund():
    """
    @dev Accept coins, to spend them in calls from inside a transfer.
    """
    pass


@external
def mint(to: address, amount: uint256):
    self.balanceOf[to] += amount


@external
def answer_with(word: uint256):
    """
    @dev Make transfers return this word: 1 is true, 0 is false, and any other value is neither.
    """
    self._answer = word


@external
def let_arrive(basis_points: uint256):
    """
    @dev Set the share of the sent amount that arrives. It can be more than 100 %.
    """
    self._arriving_basis_points = basis_points


@external
def call_inside(target: address, data: Bytes[512], amount: uint256):
    """
    @dev Make the next transfer call the target, with this token's own coins.
    """
    self._target = target
    self._data = data
    self._value = amount


@external
def approve(spender: address, amount: uint256) -> bool:
    self.allowance[msg.sender][spender] = amount
    return True


@external
def transfer(to: address, amount: uint256) -> uint256:
    self._move(msg.sender, to, amount)
    return self._answer


@external
def transferFrom(sender: address, to: address, amount: uint256) -> uint256:
    self.allowance[sender][msg.sender] -= amount
    self._move(sender, to, amount)
    return self._answer


@internal
def _move(sender: address, to: address, amount: uint256):
    if self._target != empty(address):
        target: address = self._target
        self._target = empty(address)
        if raw_call(target, self._data, value=self._value, revert_on_failure=False):
            self.inner_calls += 1
    self.balanceOf[sender] -= amount
    self.balanceOf[to] += amount * self._arriving_basis_points // BASIS
