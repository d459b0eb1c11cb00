"""Metrics of a model on a split: ranking, bins by label frequency, confidence intervals and a paired test."""

from xclearn.metrics.answers import disagreement, label_figures, reliability, surest_mistakes
from xclearn.metrics.bins import Bin, mean_by_bin, relevant_scores, volume_bins
from xclearn.metrics.clusters import mutual_information_loss
from xclearn.metrics.ranking import FILTER_RULES, apply_filter, extra_for_filter, hits, sort_predictions
from xclearn.metrics.report import KS, RECALL_KS, Report, Terms, evaluate_predictions
from xclearn.metrics.significance import PairedResult, intervals, paired_test

__all__ = [
    "FILTER_RULES",
    "KS",
    "RECALL_KS",
    "Bin",
    "PairedResult",
    "Report",
    "Terms",
    "apply_filter",
    "disagreement",
    "evaluate_predictions",
    "extra_for_filter",
    "hits",
    "intervals",
    "label_figures",
    "mean_by_bin",
    "mutual_information_loss",
    "paired_test",
    "relevant_scores",
    "reliability",
    "sort_predictions",
    "surest_mistakes",
    "volume_bins",
]
