"""Annif projects whose subjects are suggested by a model of xclearn.

Labels are the URIs of the vocabulary, their texts its labels in the project's language. A project's other settings are
those of the algorithm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from annif.backend.backend import AnnifLearningBackend
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.suggestion import SubjectSuggestion, SuggestionBatch

from xclearn import algorithms, config
from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import ConfigError, XclearnError
from xclearn.extras import is_installed
from xclearn.inference import Predictor, load_model
from xclearn.inference.folder import Model, save_model
from xclearn.inference.label_editing import NewLabel, with_labels, without_labels
from xclearn.text.preparation import LANGUAGES

if TYPE_CHECKING:
    from annif.corpus import Document, DocumentCorpus

MODEL = "xclearn-model"  # the model's folder in the project's

# What a section of projects.cfg says to Annif or to this backend; all else is a setting of the algorithm
_OWN = frozenset(("name", "language", "vocab", "analyzer", "transform", "backend", "access", "limit", "allow_learn"))
_OURS = frozenset(("algorithm", "seed", "device"))
_STEMMED = ("words", "word_piece", "subwords")  # vectorisers that can take endings off


class XclearnBackend(AnnifLearningBackend):
    """Trains a model on a corpus, adds subjects to it, and suggests."""

    name = "xclearn"
    DEFAULT_PARAMETERS: ClassVar[dict[str, Any]] = {"algorithm": "label_tree", "seed": 0, "device": "cpu"}

    _predictor: Predictor | None = None
    _subject_of_label: np.ndarray | None = None  # −1 where the vocabulary no longer has the label

    @property
    def _folder(self) -> str:
        return os.path.join(self.datadir, MODEL)

    def initialize(self, parallel: bool = False) -> None:
        """Load the model."""
        if self._predictor is None:
            if not os.path.isdir(self._folder):
                raise NotInitializedException(f"model {self._folder} not found", backend_id=self.backend_id)
            with self._said():
                self._use(load_model(self._folder), n_threads=1 if parallel else None)

    def _use(self, model: Model, n_threads: int | None = None) -> None:
        found = (self.project.subjects.by_uri(uri, warnings=False) for uri in model.labels.names)
        self._subject_of_label = np.array([-1 if subject is None else subject for subject in found], dtype=np.int64)
        self._predictor = Predictor(model, n_threads)

    def _train(self, corpus: DocumentCorpus, params: dict[str, Any], jobs: int = 0) -> None:
        if corpus == "cached":
            raise NotSupportedException("Training from cached data is not supported", backend_id=self.backend_id)
        if corpus.is_empty():
            raise NotSupportedException("Cannot train with no documents", backend_id=self.backend_id)
        if jobs > 1:
            self.warning(f"--jobs {jobs} is not needed: training uses the processor's cores as it is")
        with self._said():
            algorithm = self._algorithm(params)
            data = self._dataset(corpus.documents)
            self.info(f"training {params['algorithm']} on {len(data.train):,} documents, {data.n_labels:,} subjects")
            algorithm.fit(data, device=str(params["device"]), seed=int(params["seed"]), callback=self._told)
            algorithm.save(self._folder, replace=True)
            self._use(load_model(self._folder))

    def _learn(self, corpus: DocumentCorpus, params: dict[str, Any]) -> None:  # noqa: ARG002 (Annif passes them)
        """Add the subjects that no training document had, with these documents as examples."""
        self.initialize()
        assert self._predictor is not None
        model = self._predictor.model
        untaught = _untaught(model)
        taught = set(model.labels.names) - untaught
        examples, left = self._examples(corpus, taught)
        if not examples:
            what = "a model learns new subjects only, and these documents have none: run 'annif train' on all documents"
            raise NotSupportedException(what, backend_id=self.backend_id)
        if left:
            self.warning(f"{left:,} subjects of these documents are known: only 'annif train' learns more of them")
        replaced = sorted(untaught & examples.keys())
        with self._said():
            kept = without_labels(model, replaced) if replaced else model
            larger = with_labels(kept, [NewLabel(uri, self._text(uri), texts) for uri, texts in examples.items()])
            larger.about["learnt"] = sorted({*model.about.get("learnt", []), *examples})
            save_model(larger, self._folder, replace=True)
            self._use(larger)
        self.info(f"learnt {len(examples):,} subjects")

    def _examples(self, corpus: DocumentCorpus, taught: set[str]) -> tuple[dict[str, list[str]], int]:
        """Texts of each subject that can be learnt, and how many (document, subject) pairs cannot."""
        examples: dict[str, list[str]] = {}
        left = 0
        for document in corpus.documents:
            for uri in (self.project.subjects[subject].uri for subject in document.subject_set):
                left += uri in taught
                if uri not in taught:
                    examples.setdefault(uri, []).append(document.text)
        return examples, left

    def _suggest_batch(self, documents: list[Document], params: dict[str, Any]) -> SuggestionBatch:
        assert self._predictor is not None
        assert self._subject_of_label is not None
        with self._said():
            found = self._predictor.predict([document.text for document in documents], int(params["limit"]))
        subjects = np.where(found.ids >= 0, self._subject_of_label[found.ids], -1)
        rows = zip(subjects.tolist(), found.scores.tolist(), strict=True)
        results = [[_suggestion(*pair) for pair in zip(*row, strict=True) if pair[0] >= 0] for row in rows]
        return SuggestionBatch.from_sequence(results, self.project.subjects, limit=int(params["limit"]))

    def _algorithm(self, params: dict[str, Any]) -> Any:
        """With the settings of the project; words are stemmed in its language where there is a stemmer."""
        kind = algorithms.find(str(params["algorithm"]))
        said = [f"{name}={value}" for name, value in params.items() if name not in _OWN | _OURS]
        return config.build(kind, config.merge({}, [*said, *self._stems(kind, params)]), str(params["algorithm"]))

    def _stems(self, kind: type, params: dict[str, Any]) -> list[str]:
        """The project's language as a setting, unless the project or the algorithm has something else."""
        language, default = self.project.language, getattr(kind(), "vectoriser", None)
        stemmed = params["vectoriser"] in _STEMMED if "vectoriser" in params else hasattr(default, "language")
        if language not in LANGUAGES or not stemmed or "vectoriser.language" in params:
            return []
        if not is_installed("snowballstemmer"):
            self.warning("words are not stemmed: pip install 'xclearn[languages]' would do it")
            return []
        return [f"vectoriser.language={language}"]

    def _dataset(self, documents: Iterator[Document]) -> Dataset:
        """All subjects in use are labels; documents without subjects or text teach nothing."""
        active = self.project.subjects.active
        label_of = {subject: label for label, (subject, _) in enumerate(active)}
        uris = [subject.uri for _, subject in active]
        texts: list[str] = []
        rows: list[list[int]] = []
        for document in documents:
            labels = sorted(label_of[subject] for subject in document.subject_set if subject in label_of)
            if labels and document.text.strip():
                texts.append(document.text)
                rows.append(labels)
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        ids = np.array([label for row in rows for label in row], dtype=np.int64)
        parts = (np.ones(len(ids), dtype=np.float32), ids, starts)
        relevance = sp.csr_matrix(parts, shape=(len(rows), len(uris)))
        labels = LabelSet(uris, [self._text(uri) for uri in uris])
        return Dataset(self.project.project_id, Split(texts, relevance), labels)

    def _text(self, uri: str) -> str:
        """The label of a subject in the project's language, or else in any."""
        labels = self.project.subjects[self.project.subjects.by_uri(uri)].labels or {}
        return labels.get(self.project.vocab_lang) or next(filter(None, labels.values()), "")

    def _told(self, event: Any) -> None:
        self.debug(str(event))

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Errors of xclearn as Annif's, which its command and its REST interface report in their own way."""
        try:
            yield
        except XclearnError as error:
            kind = ConfigurationException if isinstance(error, ConfigError) else OperationFailedException
            raise kind(str(error), backend_id=self.backend_id) from error


def _untaught(model: Model) -> set[str]:
    """The labels of a model that no document has taught it: neither a training document nor one learnt later."""
    counts = np.ones(len(model.labels)) if model.label_counts is None else model.label_counts
    return {name for name, count in zip(model.labels.names, counts, strict=True) if not count} - {
        *model.about.get("learnt", [])
    }


def _suggestion(subject: int, score: float) -> SubjectSuggestion:
    """Annif takes scores from 0 to 1."""
    return SubjectSuggestion(subject, min(max(score, 0.0), 1.0))
