"""How the shop's tables came to be."""
