"""Payment links: pages at which buyers create payments without a shop."""
