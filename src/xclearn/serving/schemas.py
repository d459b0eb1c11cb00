"""The JSON of requests and responses, as shown by OpenAPI. Sizes are checked by the server's limits, not here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_STRICT = ConfigDict(extra="forbid", strict=True)  # misspelt fields and numbers given as text are errors


class PredictRequest(BaseModel):
    """One or several texts, and options for their labels."""

    model_config = _STRICT | ConfigDict(json_schema_extra={"examples": [{"text": "a small dog kept as a pet", "k": 5}]})

    text: str | None = Field(None, description="One text; use this or `texts`.")
    texts: list[str] | None = Field(None, description="Several texts, predicted in order.")
    k: int = Field(5, description="Labels per text; fewer if fewer meet the other conditions.")
    threshold: float = Field(0.0, allow_inf_nan=False, description="Labels with a lower score are left out.")
    target_precision: float | None = Field(
        None, gt=0, le=1, description="Only labels with a score that reaches this precision; a text may get none."
    )
    best_f1: bool = Field(False, description="Only labels above the threshold with the best F1.")
    by_frequency: bool = Field(False, description="Reach the precision for rare and frequent labels separately.")
    tail: float | None = Field(None, ge=0, le=1, description="Favours rare labels, 0 to 1; scores stay probabilities.")
    include: list[str] | None = Field(None, description="If given, only these labels are considered.")
    exclude: list[str] = Field([], description="Labels to exclude.")


class Prediction(BaseModel):
    """A label and its score between 0 and 1."""

    label: str
    score: float


class PredictReply(BaseModel):
    """One list per text, best label first."""

    predictions: list[list[Prediction]]


class ExplainRequest(BaseModel):
    """A text and the labels to explain."""

    model_config = _STRICT

    text: str
    labels: list[str]


class TokenPart(BaseModel):
    """The contribution of a token of the text."""

    token: str
    part: float


class NearText(BaseModel):
    """A training text of the label, and the cosine of its vector with the query's."""

    text: str
    cosine: float


class SourceVote(BaseModel):
    """The contribution of a blend's source: a member, the label's text, the nearest training texts, or its centroid."""

    source: str
    score: float = Field(description="A member's score, else a cosine or the share of nearest texts.")
    place: int | None = Field(description="Rank among the labels it lists.")
    share: float = Field(description="Loss in the blend's logit without this source.")
    tokens: list[TokenPart]


class Label(BaseModel):
    """A label's name, and its text if the model has it."""

    label: str
    text: str | None
    count: int | None = Field(description="Training documents with this label, if the model knows it.")


class Explained(Label):
    """Exact: `rest` and the parts of the tokens sum to `value`, the logit. Else `value` is the score, `rest` that of an
    empty text, and a part is the score that is lost without the word."""

    exact: bool
    value: float
    rest: float
    tokens: list[TokenPart]
    unread: int = Field(description="Words at the end of a long text that were not examined, if not exact.")
    votes: list[SourceVote] = Field(description="For a blend, the contributions of its sources, largest first.")
    nearest: list[NearText] = Field(description="The nearest training texts of the label, if the model has any.")


class ExplainReply(BaseModel):
    """One explanation per label, in the requested order."""

    explanations: list[Explained]
    unknown: list[str] = Field(description="Words of the text that no part of the model knows.")


class LabelsReply(BaseModel):
    """Labels found, best match first; `more` if there are others, `total` includes them."""

    labels: list[Label]
    more: bool
    total: int = Field(description="Labels that contain the query, among the first 100,000 matches.")


class AddedLabel(BaseModel):
    """A label to add, with its text and optional example texts."""

    model_config = _STRICT

    label: str
    text: str
    examples: list[str] = []


class ChangeRequest(BaseModel):
    """Labels to remove, then labels to add."""

    model_config = _STRICT

    remove: list[str] = []
    add: list[AddedLabel] = []


class ChangeReply(BaseModel):
    """The version now in the folder; `in_service` if this worker already uses it."""

    n_labels: int
    version: str
    in_service: bool


class ModelReply(BaseModel):
    """The model in service; `about` is what training recorded."""

    version: str
    loaded: str
    n_labels: int
    stale: bool = Field(description="The folder has changed since; the old model is still served.")
    limits: dict[str, float]
    thresholds: bool = Field(description="Whether a target precision and the best F1 are available.")
    tail: float | None = Field(description="The model's own tail exponent; null if it has no propensities.")
    examples: list[str] = Field(description="Example texts.")
    about: dict[str, Any]


class Health(BaseModel):
    """Liveness."""

    status: str


class Ready(Health):
    """Readiness of the model in service; `stale` if its folder has changed since it was read."""

    version: str
    stale: bool


class ErrorReply(BaseModel):
    """One sentence: what is wrong, where, what came, what is allowed, what to do."""

    error: str
