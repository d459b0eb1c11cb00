"""DECAF's and ECLARE's network: documents and label texts share one token table.

The outputs may be labels or clusters of labels. A classifier combines the output's text, its text convolved over a
graph once, twice, …, and a free refinement; any of them may be absent.

    document   x̂ = ReLU(block_d(E x))
    output     w = combination(block_0(E z), block_1(E G z), …, r)        score = w · x̂ + b + prior
    block      v ↦ σ(a) ⊙ (R ReLU(v) + c) + σ(b) ⊙ v     R spectrally normalised, starting at the identity

DECAF's combination is σ(α) ⊙ text + σ(β) ⊙ r, ECLARE's an attention. Knows nothing about stages, clusters or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, final

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from xclearn.inference import components
from xclearn.parts.combination import Combine, Gates, make_combination
from xclearn.parts.fused_text import Mixture, Own, dropped
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.row_update import RowSgd
from xclearn.parts.rows import FeatureBatch, SparseRows, bag_vectors
from xclearn.parts.sparse_products import DeviceProduct, PlainProduct


@final
class EmbeddingBlock(nn.Module):
    """σ(a) ⊙ (R dropout(ReLU(v)) + c) + σ(b) ⊙ v; initially R is the identity and both gates are one half."""

    def __init__(self, dim: int, dropout: float, *, spectral: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        nn.init.eye_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        if spectral:
            parametrizations.spectral_norm(self.linear)
        self.block_gate = nn.Parameter(torch.zeros(dim))
        self.skip_gate = nn.Parameter(torch.zeros(dim))
        self.dropout = dropout

    def forward(self, vectors: torch.Tensor, around: tuple[int, int] = (0, 0)) -> torch.Tensor:
        """Of vectors (n, D), `around` which as many are in other processes."""
        inner = self.linear(dropped(F.relu(vectors), self.dropout, self.training, around))
        return self.block_gate.sigmoid() * inner + self.skip_gate.sigmoid() * vectors  # (n, D)

    def served(self) -> components.GatedBlock:
        tensors = (self.linear.weight, self.linear.bias, self.block_gate.sigmoid(), self.skip_gate.sigmoid())
        return components.GatedBlock(*(tensor.detach().float().cpu().numpy() for tensor in tensors))


@final
class OutputTexts:
    """The texts of all outputs as a sparse matrix, whose product with the token table has a fast gradient.

    The product is one sparse-dense multiplication, and its gradient one with the transposed matrix.
    """

    def __init__(self, rows: SparseRows, held: LabelRows | None = None) -> None:
        self.rows = rows
        self.held = LabelRows(0, len(rows)) if held is None else held  # outputs whose texts these are
        product = DeviceProduct if rows.indptr.is_cuda else PlainProduct
        self.product: DeviceProduct | PlainProduct = product(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def embed(
        self, table: torch.Tensor, outputs: torch.Tensor | None, *, sparse: bool, compute: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """E z of all outputs or of `outputs` (S,): (S, D); all outputs may be computed in half precision."""
        if outputs is None:
            product: torch.Tensor = _StaticProduct.apply(self.product, table, compute)
            return product
        return bag_vectors(table, self.rows.take(outputs), sparse=sparse)

    def through(
        self, block: nn.Module, table: torch.Tensor, outputs: torch.Tensor | None, *, sparse: bool
    ) -> torch.Tensor:
        """block(E z) of the same."""
        vectors: torch.Tensor = block(self.embed(table, outputs, sparse=sparse))
        return vectors


@final
class SummedTexts:
    """Clusters whose part is the sum of their labels' blocks, DECAF's û¹, instead of the block of their summed text."""

    def __init__(self, labels: OutputTexts, members: SparseRows, sums: OutputTexts) -> None:
        self.labels = labels  # L texts
        self.members = members  # (K, L)
        self.sums = sums  # K texts: where refinements start
        self.held = sums.held  # clusters whose texts these are

    def __len__(self) -> int:
        return len(self.members)

    def embed(
        self, table: torch.Tensor, outputs: torch.Tensor | None, *, sparse: bool, compute: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """E u of the summed texts."""
        return self.sums.embed(table, outputs, sparse=sparse, compute=compute)

    def through(
        self, block: nn.Module, table: torch.Tensor, outputs: torch.Tensor | None, *, sparse: bool
    ) -> torch.Tensor:
        """Σ block(E z) over the labels of all clusters, or of `outputs` (S,): (S, D)."""
        clusters = torch.arange(len(self), device=table.device) if outputs is None else outputs
        found = self.members.take(clusters)
        labels, place = found.columns.unique(return_inverse=True)
        parts = block(self.labels.embed(table, labels, sparse=sparse))
        return torch.zeros(len(clusters), table.shape[1], device=table.device).index_add(0, found.owner, parts[place])


class _StaticProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, product: DeviceProduct | PlainProduct, table: torch.Tensor, compute: torch.dtype
    ) -> torch.Tensor:
        ctx.product = product
        return product.of(table.to(compute))

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        return None, ctx.product.back(outer[0]), None


def first_refinement(
    texts: OutputTexts | SummedTexts, table: torch.Tensor, noise: torch.Generator | None = None
) -> torch.Tensor:
    """Initial refinements (S, D): E z, or noise with the same variance."""
    start = texts.embed(table.detach(), None, sparse=False)
    if noise is None:
        return start
    held = texts.held
    drawn = torch.randn(held.n_labels, start.shape[1], generator=noise)[held.start : held.stop]
    return drawn.to(start.device) * held.spread(start)


_NEARLY_OPEN = 2.0  # a gate of 0.88
AfterConvolution = Literal["block", "gcn", "light"]  # layer after a convolution: the block, one ReLU layer, or none


def _gate_starts(n_convolved: int, *, use_text: bool, refined: bool) -> list[float]:
    """Initial gates: half open, but nearly open for a label's own text beside convolved texts.

    Without the convolved texts it would be the whole classifier; at half its length training starts slowly.
    """
    own = [0.0 if refined or not n_convolved else _NEARLY_OPEN] * use_text
    return [*own, *[0.0] * (n_convolved + refined)]


@final
@dataclass(frozen=True)
class Blocks:
    """Settings of all blocks of a network."""

    dropout: float  # dropout after each ReLU
    spectral: bool  # matrices of spectral norm one
    after_convolution: AfterConvolution = "block"
    convolved_gradient: bool = True  # whether convolved texts train the token table

    def make(self, dim: int) -> EmbeddingBlock:
        return EmbeddingBlock(dim, self.dropout, spectral=self.spectral)

    def make_after_convolution(self, dim: int) -> nn.Module:
        if self.after_convolution == "block":
            return self.make(dim)
        return nn.Sequential(nn.Linear(dim, dim), nn.ReLU()) if self.after_convolution == "gcn" else nn.Identity()


@final
class TextNetwork(nn.Module):
    """Token table, document encoder and output classifiers; of several processes each has some of the outputs."""

    row_state = ("bias", "refinement")

    def __init__(
        self,
        table: torch.Tensor,  # (V, D)
        texts: Sequence[OutputTexts | SummedTexts],  # texts of the outputs, then convolved once, twice, …
        blocks: Blocks,
        *,
        use_text: bool,
        refinement: torch.Tensor | None,  # (S, D)
        sparse: bool,
        combine: Combine = "gates",
    ) -> None:
        super().__init__()
        dim = table.shape[1]
        own, *convolved = texts
        self.table = nn.Parameter(table.clone())
        self.document_block = blocks.make(dim)
        self.text_block = blocks.make(dim)
        self.graph_blocks = nn.ModuleList([blocks.make_after_convolution(dim) for _ in convolved])
        self.bias = nn.Parameter(torch.zeros(len(own), 1))
        self.refinement = None if refinement is None else nn.Parameter(refinement.clone())  # (S, D)
        starts = _gate_starts(len(convolved), use_text=use_text, refined=refinement is not None)
        assert starts, "a classifier needs its text or a refinement"
        self.combination = make_combination(combine, dim, starts, blocks.dropout)
        self.texts = own
        self.rows = own.held
        self.convolved = convolved
        self.dropout = blocks.dropout
        self.use_text = use_text
        self.convolved_gradient = blocks.convolved_gradient
        self.sparse = sparse
        self.refinement_update: RowSgd | None = None

    def move_refinements_at_once(self, lr: float) -> None:
        """Let a step against all outputs update refinements directly, so that their gradient is never stored."""
        if self.refinement is not None and self.mixture() is not None:
            self.refinement_update = RowSgd(len(self.refinement), self.refinement.shape[1], lr)

    def encode(self, features: FeatureBatch) -> torch.Tensor:
        """Encode documents (n, D)."""
        summed = bag_vectors(self.table, features, sparse=self.sparse)
        return F.dropout(F.relu(self.document_block(summed)), self.dropout, self.training)

    def classifiers(self, outputs: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (S, D) and bias (S,) of all outputs that are here, or of `outputs` (S,) among them."""
        return reduce(torch.add, self.weighted_parts(outputs)), self._rows(self.bias, outputs)[:, 0]

    def weighted_parts(self, outputs: torch.Tensor | None = None) -> list[torch.Tensor]:
        """The terms of the classifiers, each (S, D): text, convolved texts and refinement, if present."""
        sparse = self.sparse
        parts = []
        if self.use_text:
            parts.append(self.texts.through(self.text_block, self.table, outputs, sparse=sparse))
        table = self.table if self.convolved_gradient else self.table.detach()
        for block, texts in zip(self.graph_blocks, self.convolved, strict=True):
            parts.append(block(texts.embed(table, outputs, sparse=sparse)))
        if self.refinement is not None:
            parts.append(self._rows(self.refinement, outputs))
        return parts if len(parts) == 1 else self.combination(parts)

    def mixture(self) -> Mixture | None:
        """The multiplied-out form of `classifiers`, if possible: a block on the text, optional gates and refinements.

        None if texts are convolved over a graph or summed by cluster, parts are weighted by attention, or there is no
        text.
        """
        combination = self.combination
        summed = isinstance(self.texts, SummedTexts)
        if not self.use_text or self.convolved or summed or not isinstance(combination, Gates):
            return None
        linear, block = self.text_block.linear, self.text_block
        through = block.block_gate.sigmoid()
        past = block.skip_gate.sigmoid()
        if self.refinement is None:
            return Mixture(through[:, None] * linear.weight, through * linear.bias, past, None)
        open_text, open_refinement = (gate.sigmoid() for gate in combination.gates)
        through = through * open_text
        return Mixture(through[:, None] * linear.weight, through * linear.bias, past * open_text, open_refinement)

    def own(self, outputs: torch.Tensor | None, prior: float, compute: torch.dtype) -> Own:
        """Text vectors, refinements, and biases with the prior, of all outputs or `outputs` (S,)."""
        text = self.texts.embed(self.table, outputs, sparse=self.sparse, compute=compute)
        refinement = None if self.refinement is None else self._rows(self.refinement, outputs)
        return Own(text, refinement, self._rows(self.bias, outputs)[:, 0] + prior)

    def shared_parameters(self) -> list[nn.Parameter]:
        """All parameters except the token table and those of single outputs."""
        shared = (self.document_block, self.text_block, self.graph_blocks, self.combination)
        return [parameter for part in shared for parameter in part.parameters()]

    def go_on_from(self, before: TextNetwork, *, blocks: bool) -> None:
        """Take over the blocks of an earlier network, and its biases if the outputs are the same."""
        if blocks:
            for mine, other in zip(self._all_blocks(), before._all_blocks(), strict=True):
                mine.load_state_dict(other.state_dict())
        if before.bias.shape == self.bias.shape:
            self.bias.data.copy_(before.bias.data)

    def _all_blocks(self) -> list[nn.Module]:
        return [self.document_block, self.text_block, *self.graph_blocks]

    def _rows(self, values: torch.Tensor, outputs: torch.Tensor | None) -> torch.Tensor:
        return values if outputs is None else F.embedding(outputs, values, sparse=self.sparse)

    def served_encoder(self) -> components.Bag:
        table = self.table.detach().float().cpu().numpy()
        return components.Bag(table, [self.document_block.served(), components.Relu()])
