"""The cost of Astec's modules: the weights that each trains, and the other networks in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from xclearn.parts.cost import Weights
from xclearn.parts.row_training import row_weights
from xclearn.training.plan import StageCost, beside
from xclearn.training.prepare import Size
from xclearn.training.row_stages import RowStages


@final
@dataclass(frozen=True)
class ModuleCosts:
    """The costs of one member's modules."""

    stages: RowStages
    size: Size
    encoder: tuple[Weights, ...]
    negatives: str  # description

    def surrogate(self, epochs: int, outputs: int, drawn: int) -> StageCost:
        """Module I: the encoder with a block, on `outputs`; `drawn` of them per step, or all if 0."""
        return self._cost("surrogate", epochs, [*self.encoder, self._block], outputs, drawn or outputs)

    def extreme(self, epochs: int, against: int, *, joint: bool) -> StageCost:
        """Module IV: the block and, if `joint`, the encoder; otherwise its vectors are fixed."""
        trained = [*self.encoder, self._block] if joint else [self._block]
        cost = self._cost("extreme", epochs, trained, self.size.n_labels, min(self.size.n_labels, against))
        return cost if joint else beside(cost, self._network)

    def reranker(self, epochs: int, first: int) -> StageCost:
        """A separate network, beside the one it learns from and the served copy of that one's rows."""
        n_labels = self.size.n_labels
        cost = self._cost("re-ranker", epochs, [*self.encoder, self._block], n_labels, min(n_labels, first))
        rows = row_weights(n_labels, self.stages.dim, self.stages.label_optimiser, self.stages.device)
        return beside(cost, self._network + rows.held + self._served_rows)

    def kept(self, networks: int) -> int:
        """Bytes that a finished member with `networks` networks keeps; on a GPU they move to the CPU."""
        return networks * (self._network + self._served_rows) if self.stages.device == "cpu" else 0

    @property
    def _block(self) -> Weights:
        return Weights(values=self.stages.dim**2)

    @property
    def _network(self) -> int:
        return sum(part.held for part in self.encoder)

    @property
    def _served_rows(self) -> int:
        return 0 if self.stages.device == "cuda" else 4 * self.size.n_labels * self.stages.dim

    def _cost(self, name: str, epochs: int, trained: list[Weights], outputs: int, scored: int) -> StageCost:
        path = f"{self.negatives}: {scored:,} of {outputs:,} outputs per document"
        return self.stages.cost(name, self.size, trained, epochs=epochs, outputs=outputs, scored=scored, path=path)
