"""Any algorithm with short training."""

import dataclasses

from xclearn import algorithms

TEXTS_ONLY = ("xml_cnn",)  # read words in their order, which features do not have
ELSEWHERE = ("shortlister_epochs", "trial_epochs")  # of stages that defaults do not have


def epochs_everywhere(name: str, epochs: int) -> dict[str, int]:
    """Settings that train every stage of an algorithm for so many epochs."""
    names = [field.name for field in dataclasses.fields(algorithms.find(name))]
    fewer = {"folds": 2} if "folds" in names else {}  # a round of training for each
    return {field: epochs for field in names if field.endswith("epochs") and field not in ELSEWHERE} | fewer
