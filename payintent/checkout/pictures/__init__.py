"""Images of merchants and products: fetched, re-encoded and cached."""
