"""On-chain payments: chain watching, log proofs, and settlement of transfers and refunds."""
