"""2C2P: the adapter, its JWTs, amounts, response codes and refunds."""
