"""Makes Annif know the backend `xclearn`: importing this package registers it, and nothing of Annif is replaced.

The command `annif` imports it by the entry point in pyproject.toml. A server that loads `annif:create_app` itself does
so by the setting ANNIF_CONFIG=xclearn_annif.ProductionConfig. Heavy imports wait until a project uses the backend.
"""

from __future__ import annotations

import annif.backend
import annif.default_config
import click


def _xclearn() -> type:
    from xclearn_annif.backend import XclearnBackend

    return XclearnBackend


annif.backend._backend_fns.setdefault("xclearn", _xclearn)


class ProductionConfig(annif.default_config.ProductionConfig):
    """Annif's own; naming it registers the backend."""


@click.command("xclearn")
def command() -> None:
    """Show the version and the algorithms of the xclearn backend."""
    import xclearn
    from xclearn import algorithms

    click.echo(f"xclearn {xclearn.__version__}: {', '.join(algorithms.algorithm_names())}")
