# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title An account with code that is paid in native coins and does not just take them
@license Apache-2.0
@notice For tests only: anybody tells it how to misbehave.
"""

inner_calls: public(uint256)  # how many calls from inside a payment were let through

_refuses: bool
_target: address
_value: uint256
_data: Bytes[512]


@external
@payable
def fund():
    """
    @dev Take coins, to spend them in calls from inside a payment.
    """
    pass


@external
def refuse(refuses: bool):
    self._refuses = refuses


@external
def call_inside(target: address, data: Bytes[512], amount: uint256):
    """
    @dev Have the next payment call somebody, with coins of this account's own.
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
