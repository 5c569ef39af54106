# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title A standard ERC-20 token
@license Apache-2.0
@notice For development chains and tests only: anyone can mint tokens.
"""

event Transfer:
    sender: indexed(address)
    to: indexed(address)
    amount: uint256


event Approval:
    owner: indexed(address)
    spender: indexed(address)
    amount: uint256


name: public(String[32])
symbol: public(String[8])
decimals: public(uint8)
totalSupply: public(uint256)
balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])


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
def approve(spender: address, amount: uint256) -> bool:
    self.allowance[msg.sender][spender] = amount
    log Approval(owner=msg.sender, spender=spender, amount=amount)
    return True


@external
def transfer(to: address, amount: uint256) -> bool:
    self._move(msg.sender, to, amount)
    return True


@external
def transferFrom(sender: address, to: address, amount: uint256) -> bool:
    self.allowance[sender][msg.sender] -= amount
    self._move(sender, to, amount)
    return True


@internal
def _move(sender: address, to: address, amount: uint256):
    self.balanceOf[sender] -= amount
    self.balanceOf[to] += amount
    log Transfer(sender=sender, to=to, amount=amount)
