"""Proposals and refunds that need approval by a second operator."""
