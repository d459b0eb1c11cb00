"""A token table from a pretrained transformer: each token is encoded alone, centred, and reduced by PCA.

The method of model2vec (Tulkens and van Dongen, 2024) without its weighting by frequency, as bags already have TF-IDF
weights. Prediction takes no longer. Knows nothing about what the table is used for.
"""

from __future__ import annotations

import numpy as np
import torch

from xclearn.errors import ConfigError, DataError
from xclearn.inference.sequences import transformer_vectors
from xclearn.parts.sequence_encoders import load_transformer
from xclearn.text import Pretrained, SubwordVectoriser, Vectoriser
from xclearn.text.documents import TEXTS
from xclearn.text.tokenisers import CONTINUES
from xclearn.text.word_vectors import WordVectors

_LONGEST = 16  # maximum pieces of a token
_AT_ONCE = 512  # tokens per batch


def distilled(folder: str, vectoriser: Vectoriser, dim: int) -> WordVectors:
    """Vectors (V, `dim`) of mean length one for the tokens of a vectoriser, from the transformer in a folder.

    Tokens without text, such as hashed parts of words, stay unknown.
    """
    if vectoriser.reads != TEXTS:
        raise DataError("word vectors of a transformer need a vocabulary of words", got=vectoriser.reads)
    n_tokens = vectoriser.n_words if isinstance(vectoriser, SubwordVectoriser) else vectoriser.n_features
    tokens = [token.removeprefix(CONTINUES) for token in vectoriser.tokens(range(n_tokens))]
    encoded = _encoded(Pretrained(folder=folder, max_length=_LONGEST), tokens)  # (n, H)
    if dim > encoded.shape[1]:
        what = "the transformer's vectors are shorter"
        allowed = f"up to {encoded.shape[1]}"
        raise ConfigError(what, where="embedding_dim", got=dim, allowed=allowed)
    values = np.zeros((vectoriser.n_features, dim), dtype=np.float32)
    values[:n_tokens] = _main_directions(encoded, dim)
    return WordVectors(values, np.arange(len(values)) < n_tokens)


def _encoded(settings: Pretrained, tokens: list[str]) -> np.ndarray:
    """The mean of the last layer (n, H) for each token, as unit vectors; batches hold tokens of similar length."""
    ids = torch.from_numpy(settings.learn([]).transform(tokens))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_transformer(settings).eval().to(device)
    order = (ids >= 0).sum(dim=1).argsort(stable=True)
    vectors = torch.empty(len(ids), model.config.hidden_size)
    with torch.inference_mode():
        for rows in order.split(_AT_ONCE):
            vectors[rows] = transformer_vectors(model, ids[rows].to(device), "mean").cpu()
    return torch.nn.functional.normalize(vectors, dim=1).numpy()


def _main_directions(vectors: np.ndarray, dim: int) -> np.ndarray:
    """The principal components (n, `dim`) of centred vectors, scaled to mean length one."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    kept = directions[:, ::-1][:, :dim]
    kept *= np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(dim)])  # makes the sign deterministic
    found = centred @ kept.astype(np.float32)
    return found / max(float(np.linalg.norm(found, axis=1).mean()), 1e-12)
