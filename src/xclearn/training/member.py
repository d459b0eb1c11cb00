"""An algorithm as a part of another: its stages run inside the whole's run, under names of their own.

Knows nothing about what the parts are put together to.
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
    """One algorithm on the data of one run; what it draws and keeps has its name in front."""

    def __init__(self, name: str, algorithm: Algorithm, data: Prepared, run: Run) -> None:
        if algorithm.calibrate:
            what = "a member of a blend has no probabilities of its own"
            todo = "Leave calibrate out; the blend has them."
            raise ConfigError(what, where="members", got=algorithm.name, todo=todo)
        kind = run.device.type
        self.algorithm = with_own_epochs(algorithm, data.size, kind)._resolve(data.size, kind)
        self._name, self._data, self._run = name, data, run.part(name)

    def stages(self) -> Iterator[Stage]:
        """To be trained one after the other."""
        for stage in self.algorithm._stages(self._data, self._run):
            yield dataclasses.replace(stage, name=f"{self._name}-{stage.name}")

    def servable(self) -> Servable | Ensemble:
        """What the trained stages serve."""
        served = self.algorithm._finished(self._data, self._run)
        if isinstance(served, BlendServable):
            raise ConfigError("a blend cannot be a member of another", where="members", got=self.algorithm.name)
        return served
