"""`python -m payintent_cli`."""

from payintent_cli.command import run

run()
