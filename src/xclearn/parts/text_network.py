"""DECAF's network: documents and label texts share one token table; a classifier is a gated sum of text and refinement.

The outputs may be labels or clusters of labels; the network does not know which.

    document   x̂ = ReLU(block_d(E x))
    output     w = σ(α) ⊙ block_l(E z) + σ(β) ⊙ r        score = w · x̂ + b + prior
    block      v ↦ σ(a) ⊙ (R ReLU(v) + c) + σ(b) ⊙ v     R spectrally normalised, starting at the identity

Either part of w may be switched off. Knows nothing about stages, clusters or losses.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from xclearn.inference import components
from xclearn.parts.rows import FeatureBatch, SparseRows, bag_vectors


@final
class EmbeddingBlock(nn.Module):
    """σ(a) ⊙ (R dropout(ReLU(v)) + c) + σ(b) ⊙ v, with R at the identity and both gates at one half at the start."""

    def __init__(self, dim: int, dropout: float, *, spectral: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        nn.init.eye_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        if spectral:
            parametrizations.spectral_norm(self.linear)
        self.block_gate, self.skip_gate = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.dropout = dropout

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        inner = self.linear(F.dropout(F.relu(vectors), self.dropout, self.training))
        return self.block_gate.sigmoid() * inner + self.skip_gate.sigmoid() * vectors  # (n, D)

    def served(self) -> components.GatedBlock:
        tensors = (self.linear.weight, self.linear.bias, self.block_gate.sigmoid(), self.skip_gate.sigmoid())
        return components.GatedBlock(*(tensor.detach().float().cpu().numpy() for tensor in tensors))


@final
class OutputTexts:
    """The texts of all outputs as a sparse matrix whose product with the token table can be differentiated fast.

    On a GPU the whole product is one sparse-dense multiplication, and its gradient one with the transposed matrix.
    """

    def __init__(self, rows: SparseRows) -> None:
        self.rows = rows
        owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.indptr.device), rows.indptr.diff())
        places, shape = torch.stack([owner, rows.columns.long()]), (len(rows), rows.n_columns)
        self.matrix = torch.sparse_coo_tensor(places, rows.values, shape, is_coalesced=True, check_invariants=True)
        self.transposed = self.matrix.t().coalesce()

    def __len__(self) -> int:
        return len(self.rows)

    def embed(self, table: torch.Tensor, outputs: torch.Tensor | None, *, sparse: bool) -> torch.Tensor:
        """E z of all outputs, or of `outputs` (S,) only: (S, D)."""
        if outputs is None:
            product: torch.Tensor = _StaticProduct.apply(self.matrix, self.transposed, table)
            return product
        return bag_vectors(table, self.rows.take(outputs), sparse=sparse)


class _StaticProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: torch.Tensor, transposed: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        ctx.transposed = transposed
        return matrix @ table

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        return None, None, ctx.transposed @ outer[0]


@final
class TextNetwork(nn.Module):
    """Token table, document encoder and output classifiers."""

    def __init__(
        self,
        table: torch.Tensor,
        texts: OutputTexts,
        *,
        dropout: float,
        spectral: bool,
        use_text: bool,
        refinement: torch.Tensor | None,
        sparse: bool,
    ) -> None:
        super().__init__()
        dim = table.shape[1]
        self.table = nn.Parameter(table.clone())
        self.document_block = EmbeddingBlock(dim, dropout, spectral=spectral)
        self.text_block = EmbeddingBlock(dim, dropout, spectral=spectral)
        self.text_gate, self.refinement_gate = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.bias = nn.Parameter(torch.zeros(len(texts), 1))
        self.refinement = None if refinement is None else nn.Parameter(refinement.clone())  # (S, D)
        self.texts, self.dropout, self.use_text, self.sparse = texts, dropout, use_text, sparse

    def encode(self, features: FeatureBatch) -> torch.Tensor:
        """Documents → (n, D)."""
        summed = bag_vectors(self.table, features, sparse=self.sparse)
        return F.dropout(F.relu(self.document_block(summed)), self.dropout, self.training)

    def classifiers(self, outputs: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (S, D) and bias (S,) of all outputs or of `outputs` (S,)."""
        bias = self._rows(self.bias, outputs)[:, 0]
        text = self.text_block(self.texts.embed(self.table, outputs, sparse=self.sparse)) if self.use_text else None
        if self.refinement is None:
            assert text is not None, "a classifier needs its text or a refinement"
            return text, bias
        free = self._rows(self.refinement, outputs)
        if text is None:
            return free, bias
        return self.text_gate.sigmoid() * text + self.refinement_gate.sigmoid() * free, bias

    def _rows(self, values: torch.Tensor, outputs: torch.Tensor | None) -> torch.Tensor:
        return values if outputs is None else F.embedding(outputs, values, sparse=self.sparse)

    def served_encoder(self) -> components.Bag:
        table = self.table.detach().float().cpu().numpy()
        return components.Bag(table, [self.document_block.served(), components.Relu()])
