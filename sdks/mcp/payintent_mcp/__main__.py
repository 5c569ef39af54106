"""`python -m payintent_mcp`."""

from payintent_mcp.command import main

main()
