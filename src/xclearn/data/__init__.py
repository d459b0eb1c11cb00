"""Data sets: reading, checking, splitting and writing."""

from xclearn.data.checks import Finding, statistics, validate
from xclearn.data.columns import Reading
from xclearn.data.dataset import Dataset, LabelSet, Split
from xclearn.data.inputs import read_documents
from xclearn.data.load import bundled_datasets, load_dataset
from xclearn.data.propensity import propensity_of
from xclearn.data.splits import hold_out
from xclearn.data.topk import TopK
from xclearn.data.write import write_dataset

__all__ = [
    "Dataset",
    "Finding",
    "LabelSet",
    "Reading",
    "Split",
    "TopK",
    "bundled_datasets",
    "hold_out",
    "load_dataset",
    "propensity_of",
    "read_documents",
    "statistics",
    "validate",
    "write_dataset",
]
