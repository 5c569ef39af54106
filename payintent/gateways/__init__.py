"""One file per payment gateway, each a `Gateway` of the domain."""
