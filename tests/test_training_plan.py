"""The memory plan: its arithmetic against a real process, and what a refusal says."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from planted import planted

from xclearn import config
from xclearn.algorithms.elias.cost import IndexCost
from xclearn.algorithms.elias.stages import Phase
from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.errors import PlanError
from xclearn.parts.cost import Weights
from xclearn.training.plan import (
    Plan,
    Speed,
    StageCost,
    Steps,
    available_memory,
    beside,
    measured_speed,
    of_members,
    require_fit,
    stage_cost,
)
from xclearn.training.prepare import Size

MIB = 1 << 20
RUNTIME = 96 * MIB
SIZE = Size(n_documents=1_000, n_labels=100_000, n_features=50_000, n_feature_entries=20_000, n_relevant=3_000)

# Each large enough that what torch itself takes is the smaller part.
ONE_VS_ALL = {"algorithm": "one_vs_all", "epochs": 1}
DECAF = {"algorithm": "decaf", "surrogate_epochs": 1, "ranker_epochs": 1}
ELIAS = {"algorithm": "elias", "n_documents": 1_000, "first_epochs": 1, "second_epochs": 1, "batch_size": 256}
MEASURED = {
    "exact": ONE_VS_ALL | {"n_documents": 300, "exact_labels": 50_000, "batch_size": 64},
    "sampled": ONE_VS_ALL | {"n_documents": 1_000, "exact_labels": 0, "batch_size": 256},
    "sampled, decaf": DECAF | {"n_documents": 1_000, "ranker": "sampled", "batch_size": 256},
    "sampled, eclare": DECAF
    | {"algorithm": "eclare", "order": 1, "game": 0.0, "n_documents": 1_000, "ranker": "sampled", "batch_size": 256},
    "exact, decaf": DECAF | {"n_documents": 100, "ranker": "exact", "batch_size": 64},
    "exact, mach": {"algorithm": "mach", "epochs": 1, "n_documents": 1_000, "batch_size": 256, "n_repetitions": 3},
    "about, elias": ELIAS,
    "500 labels, elias on paths": ELIAS | {"negatives": "shortlist"},
    "all, elias against all, adam": ELIAS | {"negatives": "all", "label_optimiser": "adam", "batch_size": 64},
    "500 labels, elias, averaged, stopping": ELIAS
    | {"first": {"average_from": 0.0}, "second": {"average_from": 0.0}, "stopping": {"hold_out": 0.05}},
    "about, elias, three members": ELIAS | {"n_members": 3},
    "about, elias, clustered again": ELIAS | {"recluster_after": 1},
    "sampled, decaf, three members": DECAF
    | {"n_documents": 1_000, "ranker": "sampled", "batch_size": 256, "n_members": 3},
    "both, astec, three members": {
        **{"algorithm": "astec", "n_documents": 1_000, "batch_size": 256, "n_members": 3},
        **{"surrogate_epochs": 1, "extreme_epochs": 1, "reranker_epochs": 0},
    },
    "sampled, adam, stopping": {
        **ONE_VS_ALL,
        "n_documents": 1_000,
        "exact_labels": 0,
        "label_optimiser": "adam",
        "label_lr": 0.01,
        "stopping": {"hold_out": 0.05},
    },
}


@pytest.fixture(scope="module")
def measured() -> dict[str, dict]:
    """All processes at the same time: memory, unlike time, does not suffer from it."""
    environment = os.environ | {"PYTHONPATH": str(Path(config.__file__).parents[1])}
    script = Path(__file__).with_name("measured_fit.py")
    running = {
        name: subprocess.Popen(
            [sys.executable, str(script), json.dumps({"embedding_dim": 510, **settings})],
            env=environment,
            stdout=subprocess.PIPE,
        )
        for name, settings in MEASURED.items()
    }
    return {name: json.loads(process.communicate()[0]) for name, process in running.items()}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is counted in KiB on Linux only")
@pytest.mark.parametrize("name", MEASURED)
def test_the_planned_peak_is_within_a_quarter_of_the_measured_one(measured, name):
    found = measured[name]
    planned, peak = found["planned"], found["measured"]
    print(f"{name}: planned {planned / MIB:.0f} MiB, measured {peak / MIB:.0f} MiB, ratio {planned / peak:.3f}")
    assert found["path"].startswith(name.split(",")[0])
    assert peak > 3 * RUNTIME
    assert abs(planned - peak) < 0.25 * peak


def cost(parameters: int, optimiser: int = 0, working: int = 0) -> StageCost:
    return StageCost(
        name="train",
        parameters=parameters * MIB,
        optimiser=optimiser * MIB,
        working=working * MIB,
        flops_per_epoch=3e9,
        epochs=5,
        path="exact",
    )


def test_the_peak_is_of_the_largest_stage():
    plan = Plan(device="cpu", data=10 * MIB, stages=(cost(100, 50, 7), cost(120, 10, 1)))
    assert plan.peak == (10 + 157) * MIB + RUNTIME


def test_members_train_beside_what_is_kept_of_those_before():
    first, second, third = of_members([cost(100, 50, 7)], 3, 30 * MIB)
    assert [stage.name for stage in (first, second, third)] == ["train-0", "train-1", "train-2"]
    assert [stage.parameters // MIB for stage in (first, second, third)] == [100, 130, 160]


@pytest.mark.parametrize(("beam", "matches"), [(100, 100 * 300_000), (4096, 4096 * 40_000)])
def test_matching_labels_with_clusters_is_planned(beam, matches):
    """Of each relevant pair with every cluster explored, but of no more than there are pairs of label and cluster."""
    size = Size(n_documents=99, n_labels=40_000, n_features=9, n_feature_entries=99, n_relevant=300_000)
    cost = IndexCost(
        **{
            "device": "cpu",
            "size": size,
            "dim": 8,
            "clustered_dim": 8,
            "encoder": (Weights(values=72),),
        },
        **{"encoder_working": 0, "encoder_products": 0, "n_clusters": 4096, "n_edges": 100, "beam": beam},
        **{"shortlist": 0, "drawn": 99, "label_optimiser": "sgd", "stopping": False},
    )
    stage = cost.stage("second", Phase(batch_size=16), 1, "matching")
    held = stage.parameters + stage.optimiser + stage.working
    assert 24 * matches < held < 24 * matches + 10 * MIB  # and the network


def test_a_stage_costs_what_its_weights_declare():
    """Ten values by Adam and a hundred by SGD, whose best epoch is kept; then a copy of 3,000 bytes is served."""
    adam, sgd = Weights(values=10, touched=4), Weights(values=100, optimiser="sgd", copies=1)
    assert [(each.held, each.state, each.gradient, each.best) for each in (adam, sgd)] == [
        (40, 80, 16, 40),
        (600, 0, 400, 400),
    ]
    own = Weights(values=10, in_module=True)
    assert own.best == 40 + 80
    settings = {"epochs": 3, "products": 7.0, "path": "exact", "steps": Steps(2, 500)}
    plain = stage_cost("train", [adam, sgd], **settings)
    assert (plain.parameters, plain.optimiser, plain.working, plain.flops_per_epoch) == (640, 80, 500, 42)
    assert stage_cost("train", [adam, sgd], best=True, **settings).working == 500 + 440
    assert stage_cost("train", [adam, sgd], served=3_000, **settings).working == 3_000 - 80
    assert beside(plain, 5).parameters == 645


def test_facts_are_plain_numbers():
    facts = Plan(device="cpu", data=10 * MIB, stages=(cost(100, 50, 7),)).facts(Speed(1e9, 1e9, 1e-6))
    assert facts == {
        "device": "cpu",
        "data_mib": 10,
        "peak_mib": 167 + 96,
        "stages": [
            {
                "stage": "train",
                "path": "exact",
                "parameters_mib": 100,
                "optimiser_mib": 50,
                "working_mib": 7,
                "epochs": 5,
                "seconds_per_epoch": 3.0,
            }
        ],
    }
    json.dumps(facts)


def test_what_fits_is_accepted_without_looking_further():
    plan = Plan(device="cpu", data=0, stages=(cost(100),))
    require_fit(plan, plan.peak, alternatives=lambda: pytest.fail("asked for alternatives"))


def test_a_refusal_names_the_first_setting_that_fits():
    plan, half, quarter = (Plan(device="cpu", data=0, stages=(cost(size),)) for size in (100, 50, 25))
    alternatives = [("dim = 64", half), ("dim = 32", quarter)]
    with pytest.raises(PlanError, match=r"0\.19 GiB needed.*0\.12 GiB on cpu.*Set dim = 32\."):
        require_fit(plan, quarter.peak, lambda: alternatives)
    with pytest.raises(PlanError, match=r"Use a machine with more memory\."):
        require_fit(plan, quarter.peak - 1, lambda: alternatives)


@pytest.mark.parametrize("exact_labels", [0, 1_000_000])
@pytest.mark.parametrize("share", [0.95, 0.8, 0.6])
def test_the_setting_a_refusal_names_really_fits(exact_labels, share):
    settings = {"embedding_dim": 512, "batch_size": 1024, "epochs": 1, "exact_labels": exact_labels}
    algorithm = OneVsAll(**settings)._resolve(SIZE, "cpu")
    plan = algorithm._plan(SIZE, "cpu")
    available = int(share * plan.peak)
    with pytest.raises(PlanError) as caught:
        require_fit(plan, available, lambda: algorithm._alternatives(SIZE, "cpu"))
    name, value = re.fullmatch(r"Set (\w+) = (\d+)\.", caught.value.todo).groups()
    smaller = dataclasses.replace(algorithm, **{name: int(value)})._plan(SIZE, "cpu")
    assert smaller.peak <= available
    doubled = dataclasses.replace(algorithm, **{name: 2 * int(value)})._plan(SIZE, "cpu")
    assert doubled.peak > available  # no smaller than needed


def test_fit_refuses_what_no_machine_holds():
    """Half a petabyte of token vectors; refused before anything is allocated."""
    with pytest.raises(PlanError, match=r"would not fit into memory; .* Set embedding_dim = \d+\."):
        OneVsAll(embedding_dim=1 << 39).fit(planted(), device="cpu")


def test_plan_without_training(planted_texts):
    algorithm = OneVsAll()
    plan = algorithm.plan(planted_texts, device="cpu")
    assert plan.stages[0].path == "exact: all 60 labels"
    assert plan.peak > RUNTIME
    assert not hasattr(algorithm, "model_")
    assert OneVsAll(exact_labels=10).plan(planted_texts, device="cpu").stages[0].path.startswith("sampled")


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ({}, {"embedding_dim": 256}),
        ({}, {"label_optimiser": "adam"}),
        ({}, {"stopping": {}}),
        ({"exact_labels": 0, "n_negatives": 100}, {"exact_labels": 0, "n_negatives": 90_000}),
    ],
)
def test_more_of_anything_needs_more(smaller, larger):
    base = {"embedding_dim": 128, "batch_size": 512, "epochs": 1}
    made = [config.build(OneVsAll, base | given)._resolve(SIZE, "cpu") for given in (smaller, larger)]
    peaks = [each._plan(SIZE, "cpu").peak for each in made]
    assert peaks[0] < peaks[1]


def test_available_memory_is_what_the_system_says():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory(torch.device("cpu")) <= total


def test_the_machines_speed_is_measured():
    """One product of 2 · 512 · 8192 · 128 operations takes between a microsecond and ten seconds on anything."""
    speed = measured_speed(torch.device("cpu"))
    assert 1e8 < speed.operations < 1e15
    assert 1e7 < speed.bytes < 1e13
    assert 1e-8 < speed.call < 1e-2


def test_seconds_are_of_products_or_memory_and_of_calls():
    stage = dataclasses.replace(cost(1), bytes_per_epoch=8e9, calls_per_epoch=1e5)  # 3e9 operations, 5 epochs
    assert stage.seconds_per_epoch(Speed(1e9, 4e9, 1e-5)) == pytest.approx(3 + 1)
    assert stage.seconds_per_epoch(Speed(1e9, 2e9, 1e-5)) == pytest.approx(4 + 1)
    assert Plan(device="cpu", data=0, stages=(stage, stage)).seconds(Speed(1e9, 2e9, 1e-5)) == pytest.approx(50)
