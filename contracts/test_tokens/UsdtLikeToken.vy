# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title A token that behaves like USDT on Ethereum
@license Apache-2.0
@notice For development chains and tests only: anyone can mint tokens and set the fee.
@dev Transfers do not return a value. An allowance must be zero before it is changed. Anyone can set a
     fee on every transfer, and can block accounts.
"""

event Transfer:
    sender: indexed(address)
    to: indexed(address)
    amount: uint256


event Approval:
    owner: indexed(address)
    spender: indexed(address)
    amount: uint256


BASIS: constant(uint256) = 10_000

name: public(String[32])
symbol: public(String[8])
decimals: public(uint8)
totalSupply: public(uint256)
balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])
fee_basis_points: public(uint256)
blocked: public(HashMap[address, bool])


@deploy
def __init__(name: String[32], symbol: String[8], decimals: uint8):
    self.name = name
    self.symbol = symbol
    self.decimals = decimals


@external
def mint(to: address, amount: uint256):
    self.totalSupply += amount
    self.balanceOf[to] += amount
    log Transfer(sender=empty(address), to=to, amount=amount)


@external
def set_fee(basis_points: uint256):
    assert basis_points < BASIS
    self.fee_basis_points = basis_points


@external
def set_blocked(account: address, blocked: bool):
    self.blocked[account] = blocked


@external
def approve(spender: address, amount: uint256):
    assert amount == 0 or self.allowance[msg.sender][spender] == 0
    self.allowance[msg.sender][spender] = amount
    log Approval(owner=msg.sender, spender=spender, amount=amount)


@external
def transfer(to: address, amount: uint256):
    self._move(msg.sender, to, amount)


@external
def transferFrom(sender: address, to: address, amount: uint256):
    self.allowance[sender][msg.sender] -= amount
    self._move(sender, to, amount)


@internal
def _move(sender: address, to: address, amount: uint256):
    assert not self.blocked[sender]
    fee: uint256 = amount * self.fee_basis_points // BASIS
    self.balanceOf[sender] -= amount
    self.balanceOf[to] += amount - fee
    self.totalSupply -= fee
    log Transfer(sender=sender, to=to, amount=amount - fee)
