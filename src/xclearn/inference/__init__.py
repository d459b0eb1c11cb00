"""Models as files and as something to ask, without training code."""

from importlib import import_module
from pkgutil import iter_modules

from xclearn.inference.evaluation import evaluate
from xclearn.inference.folder import Model, load_model, save_model
from xclearn.inference.predictor import Predictor

for _module in iter_modules(__path__):  # a model folder names components, which register when they are imported
    import_module(f"{__name__}.{_module.name}")

load = Predictor.load

__all__ = ["Model", "Predictor", "evaluate", "load", "load_model", "save_model"]
