"""python -m headsmith: the command line."""

from headsmith.cli import main

main()
