"""Model folders and prediction, without training code."""

from importlib import import_module
from pkgutil import iter_modules

from xclearn.inference.evaluation import evaluate
from xclearn.inference.folder import Model, load_model, save_model
from xclearn.inference.predictor import Predictor

for _module in iter_modules(__path__):  # components register on import; a model folder refers to them by name
    import_module(f"{__name__}.{_module.name}")

load = Predictor.load

__all__ = ["Model", "Predictor", "evaluate", "load", "load_model", "save_model"]
