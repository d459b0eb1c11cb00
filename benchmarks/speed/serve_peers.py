# mypy: disable-error-code="import-not-found"
"""A peer behind a pipe: trained once, then asked text by text. Runs under the peer's own interpreter, without xclearn.

    python serve_peers.py fit PEER FOLDER      reads FOLDER/train.jsonl ({"text", "labels": ids}), writes FOLDER/PEER
    python serve_peers.py serve PEER FOLDER    lines {"texts", "at_once"} in, {"times_us", "cpu_us", "names"} out

Times go from the text to the names of its ten best labels, with the peer's own tf-idf step: of each text, or of all of
them `at_once`.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

K, BEAM = 10, 10


class Peer(ABC):
    @abstractmethod
    def fit(self, texts: list[str], labels: list[list[int]], n_labels: int, folder: Path) -> None: ...

    @abstractmethod
    def load(self, folder: Path) -> None: ...

    @abstractmethod
    def best(self, texts: list[str]) -> list[list[int]]:
        """The ten best labels of each."""


class Pecos(Peer):
    """XR-Linear with its defaults over PECOS's own native tf-idf."""

    def fit(self, texts: list[str], labels: list[list[int]], n_labels: int, folder: Path) -> None:
        from pecos.utils.featurization.text.vectorizers import Vectorizer

        vectorizer = Vectorizer.train(texts, config={"type": "tfidf", "kwargs": {"smooth_idf": True}})
        vectorizer.save(str(folder / "tfidf"))
        _fit_xlinear(vectorizer.predict(texts), _matrix(labels, n_labels), folder)

    def load(self, folder: Path) -> None:
        from pecos.utils.featurization.text.vectorizers import Vectorizer
        from pecos.xmc.xlinear.model import XLinearModel

        self.vectorizer = Vectorizer.load(str(folder / "tfidf"))
        self.model = XLinearModel.load(str(folder / "model"), is_predict_only=True)

    def best(self, texts: list[str]) -> list[list[int]]:
        return _best_of(self.model.predict(self.vectorizer.predict(texts), only_topk=K, beam_size=BEAM, threads=1))


class PecosSklearn(Peer):
    """XR-Linear with its defaults over scikit-learn's tf-idf."""

    def fit(self, texts: list[str], labels: list[list[int]], n_labels: int, folder: Path) -> None:
        _fit_xlinear(_fit_tfidf(texts, folder), _matrix(labels, n_labels), folder)

    def load(self, folder: Path) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        self.tfidf = _load_tfidf(folder)
        self.model = XLinearModel.load(str(folder / "model"), is_predict_only=True)

    def best(self, texts: list[str]) -> list[list[int]]:
        rows = self.tfidf.transform(texts)
        rows.sort_indices()
        return _best_of(self.model.predict(rows, only_topk=K, beam_size=BEAM, threads=1))


class Omikuji(Peer):
    """Parabel with its defaults over scikit-learn's tf-idf."""

    def fit(self, texts: list[str], labels: list[list[int]], n_labels: int, folder: Path) -> None:
        import omikuji

        rows = _fit_tfidf(texts, folder)
        rows.sort_indices()
        path = folder / "train.xc"
        with path.open("w") as stream:
            stream.write(f"{rows.shape[0]} {rows.shape[1]} {n_labels}\n")
            for i, own in enumerate(labels):
                begin, end = rows.indptr[i], rows.indptr[i + 1]
                pairs = zip(rows.indices[begin:end], rows.data[begin:end], strict=True)
                stream.write(f"{','.join(map(str, own))} {' '.join(f'{j}:{x:.5f}' for j, x in pairs) or '0:0.00001'}\n")
        omikuji.Model.train_on_data(str(path), omikuji.Model.default_hyper_param(), n_threads=2).save(
            str(folder / "model")
        )

    def load(self, folder: Path) -> None:
        import omikuji

        self.tfidf = _load_tfidf(folder)
        self.model = omikuji.Model.load(str(folder / "model"))

    def best(self, texts: list[str]) -> list[list[int]]:
        rows = self.tfidf.transform(texts)
        rows.sort_indices()
        found = []
        for begin, end in pairwise(rows.indptr.tolist()):
            pairs = list(zip(rows.indices[begin:end].tolist(), rows.data[begin:end].tolist(), strict=True))
            found.append([label for label, _ in self.model.predict(pairs, beam_size=BEAM, top_k=K)])
        return found


class FastText(Peer):
    """Hierarchical softmax over words and word pairs."""

    def fit(self, texts: list[str], labels: list[list[int]], n_labels: int, folder: Path) -> None:  # noqa: ARG002
        import fasttext

        path = folder / "train.txt"
        with path.open("w") as stream:
            for text, own in zip(texts, labels, strict=True):
                stream.write(" ".join(f"__label__{label}" for label in own) + f" {' '.join(text.lower().split())}\n")
        model = fasttext.train_supervised(
            str(path), loss="hs", epoch=25, lr=0.5, dim=100, wordNgrams=2, bucket=200_000, thread=2, verbose=0
        )
        model.save_model(str(folder / "model.bin"))

    def load(self, folder: Path) -> None:
        import fasttext

        self.model = fasttext.load_model(str(folder / "model.bin"))

    def best(self, texts: list[str]) -> list[list[int]]:
        lines = (" ".join(text.lower().split()) + "\n" for text in texts)
        found = (self.model.f.predict(line, K, 0.0, "strict") for line in lines)
        return [[int(label[len("__label__") :]) for _, label in own] for own in found]


PEERS: dict[str, Callable[[], Peer]] = {
    "pecos": Pecos,
    "pecos_sklearn": PecosSklearn,
    "omikuji": Omikuji,
    "fasttext": FastText,
}


def _fit_tfidf(texts: list[str], folder: Path) -> Any:
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    tfidf = TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"(?u)\w+", dtype=np.float32)
    rows = tfidf.fit_transform(texts)
    (folder / "tfidf.pickle").write_bytes(pickle.dumps(tfidf))
    return rows


def _load_tfidf(folder: Path) -> Any:
    return pickle.loads((folder / "tfidf.pickle").read_bytes())


def _fit_xlinear(rows: Any, relevance: Any, folder: Path) -> None:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    rows.sort_indices()
    clusters = Indexer.gen(LabelEmbeddingFactory.create(relevance, rows, method="pifa"), threads=2)
    XLinearModel.train(rows, relevance, C=clusters, threads=2).save(str(folder / "model"))


def _matrix(labels: list[list[int]], n_labels: int) -> Any:
    import numpy as np
    import scipy.sparse as sp

    rows = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    columns = np.concatenate([np.array(own, dtype=np.int64) for own in labels])
    return sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(labels), n_labels))


def _best_of(found: Any) -> list[list[int]]:
    best = []
    for begin, end in pairwise(found.indptr.tolist()):
        order = (-found.data[begin:end]).argsort(kind="stable")
        best.append(found.indices[begin:end][order].tolist())
    return best


def fit(name: str, folder: Path) -> None:
    records = [json.loads(line) for line in (folder / "train.jsonl").open()]
    names = json.loads((folder / "names.json").read_text())
    out = folder / name
    out.mkdir(exist_ok=True)
    PEERS[name]().fit([row["text"] for row in records], [row["labels"] for row in records], len(names), out)


def serve(name: str, folder: Path) -> None:
    answers_out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer itself prints is no answer
    peer = PEERS[name]()
    names = json.loads((folder / "names.json").read_text())
    peer.load(folder / name)
    print(json.dumps("ready"), file=answers_out, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        texts = question["texts"]
        parts = [texts] if question["at_once"] else [[text] for text in texts]
        times, answers, cpu = [], [], time.process_time()
        for part in parts:
            start = time.perf_counter()
            found = [[names[label] for label in own] for own in peer.best(part)]
            times.append(1e6 * (time.perf_counter() - start))
            answers += found
        spent = 1e6 * (time.process_time() - cpu) / len(texts)
        print(json.dumps({"times_us": times, "cpu_us": spent, "names": answers}), file=answers_out, flush=True)


if __name__ == "__main__":
    {"fit": fit, "serve": serve}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
