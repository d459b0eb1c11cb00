"""DECAF's network: its parts against hand-written formulas, its served form, and what labels learn from each other."""

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from xclearn.algorithms.eclare.over_graph import texts_over_graph
from xclearn.parts.rows import SparseRows
from xclearn.parts.text_network import (
    Blocks,
    EmbeddingBlock,
    OutputTexts,
    SummedTexts,
    TextNetwork,
    first_refinement,
)

V, D, OUTPUTS = 30, 6, 20
CPU = torch.device("cpu")
BLOCKS = {"dropout": 0.0, "spectral": True, "after_convolution": "block"}


def texts(seed: int = 0) -> sp.csr_matrix:
    return sp.random(OUTPUTS, V, 0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(seed))


def network(over_graph: Sequence[OutputTexts] = (), **options) -> TextNetwork:
    table = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
    blocks = Blocks(*(options.pop(name, usual) for name, usual in BLOCKS.items()))
    defaults = {"use_text": True, "refinement": None, "sparse": False}
    own = OutputTexts(SparseRows.of(texts(), CPU))
    return TextNetwork(table, [own, *over_graph], blocks, **(defaults | options)).eval()


def test_a_new_block_halves_its_input_and_adds_half_of_its_positive_part():
    block = EmbeddingBlock(D, 0.0, spectral=False).eval()
    vectors = torch.randn(4, D)
    assert torch.allclose(block(vectors), 0.5 * vectors.relu() + 0.5 * vectors)


def test_a_spectral_block_keeps_the_norm_of_its_matrix_at_one():
    block = EmbeddingBlock(D, 0.0, spectral=True)
    with torch.no_grad():
        block.linear.parametrizations.weight.original.mul_(7.0)
    for _ in range(30):  # each forward pass in training is one step of the power iteration
        block(torch.randn(2, D))
    assert torch.linalg.matrix_norm(block.linear.weight, 2).item() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("spectral", [True, False])
def test_the_served_encoder_equals_the_module(spectral):
    made = network(spectral=spectral)
    with torch.no_grad():
        for parameter in made.document_block.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    documents = texts(5)
    rows = SparseRows.of(documents, CPU).take(torch.arange(OUTPUTS))
    difference = np.abs(made.encode(rows).detach().numpy() - made.served_encoder().encode(documents)).max()
    print(f"largest difference {difference:.1e}")
    assert difference < 1e-5


def test_classifiers_of_some_outputs_are_rows_of_all_classifiers_and_have_the_same_gradient():
    some, gradients = torch.tensor([3, 4, 11]), []
    for chosen in (None, some):
        made = network(refinement=torch.randn(OUTPUTS, D, generator=torch.Generator().manual_seed(1)))
        weight, bias = made.classifiers(chosen)
        weight, bias = (weight, bias) if chosen is not None else (weight[some], bias[some])
        (weight.pow(2).sum() + bias.sum()).backward()
        gradients.append([made.table.grad, made.refinement.grad, made.bias.grad, weight.detach()])
    for whole, part in zip(*gradients, strict=True):
        assert torch.allclose(whole, part, atol=1e-5)


@pytest.mark.parametrize("outputs", [None, torch.tensor([2, 0])])
def test_the_part_of_a_cluster_may_be_the_sum_of_its_labels_blocks(outputs):
    """DECAF's û¹ by a loop over labels; the block of the summed text is something else."""
    cluster_of_label = np.arange(OUTPUTS) % 3
    members = sp.csr_matrix((np.ones(OUTPUTS, np.float32), (cluster_of_label, np.arange(OUTPUTS))), (3, OUTPUTS))
    summed_texts = sp.csr_matrix(members @ texts())
    summed_texts.sort_indices()
    sums = OutputTexts(SparseRows.of(summed_texts, CPU))
    made = network()
    each = made.classifiers()[0].detach()  # of labels: block(E z)
    summed = SummedTexts(OutputTexts(SparseRows.of(texts(), CPU)), SparseRows.of(members, CPU), sums)
    found = summed.through(made.text_block, made.table, outputs, sparse=False).detach()
    chosen = range(3) if outputs is None else outputs.tolist()
    expected = torch.stack([sum(each[label] for label in range(OUTPUTS) if label % 3 == c) for c in chosen])
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(found, sums.through(made.text_block, made.table, outputs, sparse=False), atol=1e-2)
    assert torch.allclose(
        summed.embed(made.table, outputs, sparse=False), sums.embed(made.table, outputs, sparse=False)
    )


def test_convolved_texts_train_the_token_table_only_where_that_is_asked_for():
    """Rows 0 to 9 of the table are read by neighbours alone."""
    own, near = texts().tolil(), texts(1).tolil()
    own[:, :10] = 0
    over_graph = [OutputTexts(SparseRows.of(sp.csr_matrix(near), CPU))]
    moved = []
    for wanted in (True, False):
        table = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
        blocks = Blocks(0.0, True, convolved_gradient=wanted)
        rows = [OutputTexts(SparseRows.of(sp.csr_matrix(own), CPU)), *over_graph]
        made = TextNetwork(table, rows, blocks, use_text=True, refinement=None, sparse=False)
        made.classifiers()[0].sum().backward()
        moved.append(float(made.table.grad[:10].abs().sum()))
    assert moved[0] > 0.1
    assert moved[1] == 0


def test_a_classifier_is_the_gated_sum_of_text_and_refinement():
    refinement = torch.randn(OUTPUTS, D, generator=torch.Generator().manual_seed(1))
    made = network(refinement=refinement, spectral=False)
    text = torch.from_numpy(texts().toarray()) @ made.table
    block = 0.5 * text.relu() + 0.5 * text
    assert torch.allclose(made.classifiers()[0], 0.5 * block + 0.5 * refinement, atol=1e-6)
    assert torch.equal(network(refinement=refinement, use_text=False).classifiers()[0], refinement)


def test_labels_that_never_meet_learn_from_each_other_through_a_shared_token():
    """Only output 0 is trained; output 1 shares a token with it, output 2 does not."""
    shared = np.zeros((3, V), dtype=np.float32)
    shared[0, [0, 1]], shared[1, [0, 2]], shared[2, [3, 4]] = 1, 1, 1
    table = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
    rows = OutputTexts(SparseRows.of(sp.csr_matrix(shared), CPU))
    made = TextNetwork(table, [rows], Blocks(0.0, True), use_text=True, refinement=None, sparse=False)
    before = made.classifiers()[0].detach()
    made.classifiers(torch.tensor([0]))[0].sum().backward()
    with torch.no_grad():
        made.table -= 0.1 * made.table.grad
    moved = (made.eval().classifiers()[0].detach() - before).norm(dim=1)
    assert moved[0] > 1e-3
    assert moved[1] > 1e-3
    assert moved[2] < 1e-6


# With a graph


def convolved(order: int = 1) -> list[OutputTexts]:
    return [OutputTexts(SparseRows.of(texts(7 + i), CPU)) for i in range(order)]


@pytest.mark.parametrize("kind", ["block", "gcn", "light"])
def test_a_convolved_text_is_one_more_part(kind):
    refinement = torch.randn(OUTPUTS, D, generator=torch.Generator().manual_seed(1))
    made = network(refinement=refinement, spectral=False, over_graph=convolved(), after_convolution=kind, combine="sum")
    own, over = (torch.from_numpy(texts(seed).toarray()) @ made.table for seed in (0, 7))
    after = {"block": 0.5 * over.relu() + 0.5 * over, "light": over, "gcn": made.graph_blocks[0](over)}[kind]
    expected = ((0.5 * own.relu() + 0.5 * own) + after + refinement) / 3
    assert torch.allclose(made.classifiers()[0], expected, atol=1e-5)
    assert (after >= 0).all() == (kind == "gcn")


@pytest.mark.parametrize("combine", ["attention", "attention_sigmoid", "sum", "gates"])
def test_some_classifiers_with_a_graph_are_rows_of_all(combine):
    made = network(over_graph=convolved(2), combine=combine, refinement=torch.randn(OUTPUTS, D))
    some = torch.tensor([2, 5, 19])
    assert torch.allclose(made.classifiers(some)[0], made.classifiers()[0][some], atol=1e-5)
    assert len(made.weighted_parts(some)) == 4
    assert torch.allclose(sum(made.weighted_parts(some)), made.classifiers(some)[0], atol=1e-6)


def test_labels_without_a_shared_token_learn_from_each_other_over_the_graph():
    """Only output 0 is trained; the convolved text of output 1 holds a token of it, that of output 2 does not."""
    own, over = np.zeros((3, V), dtype=np.float32), np.zeros((3, V), dtype=np.float32)
    own[0, 0], own[1, 1], own[2, 2] = 1, 1, 1
    over[0, [0, 1]], over[1, [0, 1]], over[2, 2] = 1, 1, 1
    table = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
    rows, near = (OutputTexts(SparseRows.of(sp.csr_matrix(each), CPU)) for each in (own, over))
    made = TextNetwork(
        table, [rows, near], Blocks(0.0, True), use_text=True, refinement=None, sparse=False,
        combine="sum",
    ).eval()  # fmt: skip
    before = made.classifiers()[0].detach()
    made.classifiers(torch.tensor([0]))[0].sum().backward()
    with torch.no_grad():
        made.table -= 0.1 * made.table.grad
    moved = (made.classifiers()[0].detach() - before).norm(dim=1)
    assert min(moved[:2]) > 1e-3
    assert moved[2] < 1e-6


def test_a_network_goes_on_with_the_blocks_and_biases_of_the_one_before():
    before, after = network(over_graph=convolved()), network(over_graph=convolved())
    with torch.no_grad():
        for parameter in before.parameters():
            parameter.add_(0.1)
    after.go_on_from(before, blocks=False)
    assert torch.equal(after.bias, before.bias)
    assert not torch.equal(after.graph_blocks[0].skip_gate, before.graph_blocks[0].skip_gate)
    after.go_on_from(before, blocks=True)
    for mine, other in zip(after._all_blocks(), before._all_blocks(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), other.parameters(), strict=True))


def test_a_labels_own_text_starts_nearly_whole_beside_convolved_ones_and_half_beside_a_refinement():
    refinement = torch.zeros(OUTPUTS, D)
    for free, share in ((None, torch.sigmoid(torch.tensor(2.0))), (refinement, torch.tensor(0.5))):
        made = network(over_graph=convolved(), refinement=free, spectral=False)
        own = torch.from_numpy(texts().toarray()) @ made.table
        assert torch.allclose(made.weighted_parts()[0], share * (0.5 * own.relu() + 0.5 * own), atol=1e-6)


def test_texts_over_a_graph_and_where_refinements_start_by_hand():
    features = sp.csr_matrix(np.array([[1, 0, 0], [0, 2, 0]], dtype=np.float32))  # two outputs, three tokens
    graph = sp.csr_matrix(np.array([[0, 1], [0.5, 0.5]], dtype=np.float32))
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]])
    found = [first_refinement(each, table) for each in texts_over_graph(features, graph, 2, torch.device("cpu"))]
    assert found[0].tolist() == [[1, 2], [6, 8]]
    assert found[1].tolist() == [[6, 8], [3.5, 5]]
    assert found[2].tolist() == [[3.5, 5], [4.75, 6.5]]


def test_a_random_start_has_the_spread_of_the_text_and_nothing_else_of_it():
    table = 3 * torch.randn(V, 64, generator=torch.Generator().manual_seed(0))
    own = OutputTexts(SparseRows.of(texts(), CPU))
    start, drawn, again = (
        first_refinement(own, table, noise and torch.Generator().manual_seed(noise)) for noise in (None, 5, 5)
    )
    assert torch.equal(drawn, again)
    assert drawn.std().item() == pytest.approx(start.std().item(), rel=0.2)
    assert abs(torch.corrcoef(torch.stack([drawn.flatten(), start.flatten()]))[0, 1].item()) < 0.2
