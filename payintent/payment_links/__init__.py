"""Payment links: pages on which buyers create payments without a shop."""
