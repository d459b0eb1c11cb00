"""Turns text into numbers: settings say how, vectorisers hold what was learnt."""

from xclearn.text.pretrained import Pretrained, PretrainedVectoriser
from xclearn.text.settings import Sequences, TextSettings, WordPiece, Words, vectoriser_for
from xclearn.text.subwords import Subwords, SubwordVectoriser
from xclearn.text.vectorisers import SequenceVectoriser, Vectoriser, same_vectoriser, vectoriser_from_state

__all__ = [
    "Pretrained",
    "PretrainedVectoriser",
    "SequenceVectoriser",
    "Sequences",
    "SubwordVectoriser",
    "Subwords",
    "TextSettings",
    "Vectoriser",
    "WordPiece",
    "Words",
    "same_vectoriser",
    "vectoriser_for",
    "vectoriser_from_state",
]
