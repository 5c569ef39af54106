"""`python -m payintent` is the command `payintent`."""

from payintent.cli import main

main()
