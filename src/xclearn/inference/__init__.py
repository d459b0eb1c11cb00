"""Models as files and as something to ask, without training code."""

import xclearn.inference.graph
import xclearn.inference.hashed
import xclearn.inference.layered
import xclearn.inference.re_ranking
import xclearn.inference.sequences
import xclearn.inference.sparse
import xclearn.inference.token_bag  # noqa: F401  the parts of these are found by name when a model is loaded
from xclearn.inference.evaluation import evaluate
from xclearn.inference.folder import Model, load_model, save_model
from xclearn.inference.predictor import Predictor

load = Predictor.load

__all__ = ["Model", "Predictor", "evaluate", "load", "load_model", "save_model"]
