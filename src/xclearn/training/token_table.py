"""Initialises a token table from pretrained vectors. Knows nothing about their origin."""

from __future__ import annotations

import torch

from xclearn.training.prepare import Prepared
from xclearn.training.run import Run


def start_from(table: torch.Tensor, path: str, data: Prepared, run: Run) -> None:
    """Write the word vectors of a path into the table (V, D); unknown tokens keep their vectors."""
    arrays = run.keep_all("word_vectors", lambda: data.word_vectors(path, table.shape[1])._asdict())
    known = arrays["known"]
    run.note(tokens_with_word_vectors=f"{known.sum():,} of {len(known):,}")
    table[torch.from_numpy(known)] = torch.from_numpy(arrays["values"][known])
