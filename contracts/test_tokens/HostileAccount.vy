# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title An account with code that misbehaves when it receives native coins
@license Apache-2.0
@notice For tests only: anyone can configure its behaviour.
"""

inner_calls: public(uint256)  # the number of successful calls from inside a payment

_refuses: bool
_target: address
_value: uint256
_data: Bytes[512]


@external
@payable
def fund():
    """
    @dev Accept coins, to spend them in calls from inside a payment.
    """
    pass


@external
def refuse(refuses: bool):
    self._refuses = refuses


@external
def call_inside(target: address, data: Bytes[512], amount: uint256):
    """
    @dev Make the next payment call the target, with this account's own coins.
    """
    self._target = target
    self._data = data
    self._value = amount


@external
@payable
def __default__():
    assert not self._refuses
    if self._target != empty(address):
        target: address = self._target
        self._target = empty(address)
        if raw_call(target, self._data, value=self._value, revert_on_failure=False):
            self.inner_calls += 1
