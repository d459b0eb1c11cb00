"""`python -m tests.fuzz TARGET`: hostile inputs, mutated from valid ones by fixed seeds; TARGET --help says more."""

import sys
from importlib import import_module

TARGETS = ("folders", "readers")

if __name__ == "__main__":
    if sys.argv[1:2] not in [[target] for target in TARGETS]:
        sys.exit(f"python -m tests.fuzz {' | '.join(TARGETS)}")
    import_module(f"tests.fuzz.{sys.argv[1]}").main(sys.argv[2:])
