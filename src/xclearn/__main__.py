"""`python -m xclearn`: the command `xc`, for launchers that start a module, as torchrun does."""

from xclearn.cli.main import main

main()
