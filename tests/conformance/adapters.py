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
#: The documents' example, which nobody wires.
EXAMPLES = {"example": "example_harness"}
