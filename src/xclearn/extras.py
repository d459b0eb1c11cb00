"""Optional packages: whether one is installed, which extra installs it, and the error where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from xclearn.errors import MissingExtra

EXTRA_OF = {
    "torch": "deep",
    "faiss": "ann",
    "transformers": "transformer",
    "fastapi": "serve",
    "uvicorn": "serve",
    "ray": "distributed",
    "matplotlib": "plot",
    "optuna": "tune",
    "rdflib": "skos",
    "snowballstemmer": "languages",
    "tensorboard": "track",
    "mlflow": "track",
}


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported for that."""
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # refused by a finder; a module without a specification
        return False


def require(package: str, user: str, *, otherwise: str = "") -> None:
    """Raise unless a package is installed. `user` is what needs it, `otherwise` how to do without."""
    if not is_installed(package):
        raise missing(package, user, otherwise=otherwise)


def missing(package: str, user: str, *, otherwise: str = "") -> MissingExtra:
    """The error that says which extra to install."""
    install = f"Run pip install 'xclearn[{EXTRA_OF[package]}]'"
    todo = f"{install}, or {otherwise}." if otherwise else f"{install}."
    return MissingExtra(f"{user} needs {package}, which is not installed", todo=todo)


def explained(error: ModuleNotFoundError) -> MissingExtra | None:
    """The error for a failed import of an optional package; None where the package is no optional one."""
    package = (error.name or "").partition(".")[0]
    return missing(package, "this") if package in EXTRA_OF else None
