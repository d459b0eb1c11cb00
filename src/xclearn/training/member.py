"""An algorithm as a member of another: its stages run within the other's run, under their own names.

Knows nothing about how members are combined.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import final

from xclearn.errors import ConfigError
from xclearn.inference.blend import BlendServable
from xclearn.inference.servable import Ensemble, Servable
from xclearn.training.algorithm import Algorithm
from xclearn.training.prepare import Prepared
from xclearn.training.run import Run
from xclearn.training.stage import Stage
from xclearn.training.unread import with_own_epochs


@final
class Member:
    """An algorithm on the data of a run; its random draws and stored structures are prefixed with its name."""

    def __init__(self, name: str, algorithm: Algorithm, data: Prepared, run: Run) -> None:
        if algorithm.calibrate:
            what = "a member of a blend cannot be calibrated itself"
            todo = "Leave calibrate out; the blend is calibrated."
            raise ConfigError(what, where="members", got=algorithm.name, todo=todo)
        kind = run.device.type
        self.algorithm = with_own_epochs(algorithm, data.size, kind)._resolve(data.size, kind)
        self._name, self._data, self._run = name, data, run.part(name)

    def stages(self) -> Iterator[Stage]:
        """The stages to train in order."""
        for stage in self.algorithm._stages(self._data, self._run):
            yield dataclasses.replace(stage, name=f"{self._name}-{stage.name}")

    def servable(self) -> Servable | Ensemble:
        """The servable of the trained stages."""
        served = self.algorithm._finished(self._data, self._run)
        if isinstance(served, BlendServable):
            raise ConfigError("a blend cannot be a member of another", where="members", got=self.algorithm.name)
        return served
