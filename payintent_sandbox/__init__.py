"""The sandbox: PostgreSQL, gateway emulators, development chains, a demo shop and a demo."""
