"""`python -m sfumato`."""

from sfumato.cli import main

main()
