"""Operators' sign-in by OpenID Connect."""
