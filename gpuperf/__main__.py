"""`python -m gpuperf` is `gpuperf`."""

from gpuperf.cli.app import main

main()
