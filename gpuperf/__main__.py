"""Run `python -m gpuperf` like `gpuperf`."""

from gpuperf.app import main

main()
