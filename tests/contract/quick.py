"""Any algorithm with short training."""

import dataclasses

from xclearn import algorithms

TEXTS_ONLY = ("xml_cnn",)  # read words in their order, which features do not have


def epochs_everywhere(name: str, epochs: int) -> dict[str, int]:
    """Settings that train every stage of an algorithm for so many epochs."""
    fields = dataclasses.fields(algorithms.find(name))
    return {field.name: epochs for field in fields if field.name.endswith("epochs")}
