"""Proposals and refunds that need a second operator."""
