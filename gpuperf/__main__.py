"""`python -m gpuperf` is `gpuperf`."""

from gpuperf.app import main

main()
