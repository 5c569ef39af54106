"""Signing in to the console by OpenID Connect: the provider, its tokens, and the way there."""
