"""Entry point for `python -m payintent`, which runs the `payintent` command."""

from payintent.cli import main

main()
