"""The adapters that the kit tests: each provider of the service, and its harness."""

#: Modules in this folder.
HARNESSES = {
    "2c2p": "twoc2p_harness",
    "ecpay": "ecpay_harness",
    "gateway_contract": "gateway_contract_harness",
    "simulator": "simulator_harness",
    "stripe": "stripe_harness",
    "test": "builtin_gateway_harness",
}
#: Providers that are paid only by transfers, with the tests that replace the kit.
TESTED_ELSEWHERE = {
    "onchain": "tests/onchain/test_deposits.py",
    "test_onchain": "tests/test_mode/test_test_addresses.py",
}
#: The documentation's example, which the service does not include.
EXAMPLES = {"example": "example_harness"}
