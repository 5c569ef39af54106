"""Operator sign-in with OpenID Connect."""
