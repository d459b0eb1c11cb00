"""Optional packages: whether one is installed, which extra installs it, and the error if it is missing."""

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
    """Whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # blocked by a finder; a module without a spec
        return False


def require(package: str, user: str, *, otherwise: str = "") -> None:
    """Raise unless a package is installed. `user` is what needs it, `otherwise` the alternative."""
    if not is_installed(package):
        raise missing(package, user, otherwise=otherwise)


def missing(package: str, user: str, *, otherwise: str = "") -> MissingExtra:
    """The error that names the extra to install."""
    install = f"Run pip install 'xclearn[{EXTRA_OF[package]}]'"
    todo = f"{install}, or {otherwise}." if otherwise else f"{install}."
    return MissingExtra(f"{user} needs {package}, which is not installed", todo=todo)


def explained(error: ModuleNotFoundError) -> MissingExtra | None:
    """The error for a failed import of an optional package, or None if the package is not optional."""
    package = (error.name or "").partition(".")[0]
    return missing(package, "this") if package in EXTRA_OF else None
