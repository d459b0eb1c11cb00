"""scikit-learn's grid search over settings, with a ranking metric: python examples/grid_search.py"""

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

from xclearn.integrations.sklearn import XCClassifier, precision_at_k

COLOURS = ("red", "green", "blue", "white", "black")
THINGS = ("shirt", "shoes", "hat", "coat", "scarf", "belt")


def main() -> None:
    pairs = [(colour, thing) for colour in range(len(COLOURS)) for thing in range(len(THINGS))] * 4
    random = np.random.default_rng(0)
    X = np.array([f"{COLOURS[c]} {THINGS[t]} noise{random.integers(50)}" for c, t in pairs], dtype=object)
    columns = np.array([(colour, len(COLOURS) + thing) for colour, thing in pairs]).ravel()
    Y = sp.csr_matrix((np.ones(len(columns)), columns, np.arange(0, len(columns) + 1, 2)))
    grid = {"settings__epochs": [2, 10]}
    search = GridSearchCV(XCClassifier("one_vs_all", k=2, device="cpu"), grid, scoring=precision_at_k(2), cv=2)
    search.fit(X, Y)
    for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        print(f"P@2 {score:.2f} with {settings}")


if __name__ == "__main__":
    main()
