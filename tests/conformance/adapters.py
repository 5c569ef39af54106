"""Which adapters the kit proves: each provider that the service wires, and its harness."""

#: Modules beside this one.
HARNESSES = {
    "2c2p": "twoc2p_harness",
    "ecpay": "ecpay_harness",
    "gateway_contract": "gateway_contract_harness",
    "simulator": "simulator_harness",
    "stripe": "stripe_harness",
    "test": "inner_gateway_harness",
}
#: Providers that are paid by transfers only, and the tests that try them instead of the kit.
TRIED_ELSEWHERE = {
    "onchain": "tests/onchain/test_deposits.py",
    "test_onchain": "tests/test_mode/test_test_addresses.py",
}
#: The documents' example, which nobody wires.
EXAMPLES = {"example": "example_harness"}
