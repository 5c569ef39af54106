"""The sandbox: PostgreSQL, emulators of gateways, development chains, a demo shop, a demo."""
