"""The merchant portal at `/merchant`: a merchant's people sign in and see what is their own."""
