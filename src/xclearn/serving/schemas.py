"""The JSON of requests and answers, as OpenAPI shows it. Sizes are not checked here but by the server's limits."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_STRICT = ConfigDict(extra="forbid", strict=True)  # a misspelt field, and a number as a text, are mistakes


class PredictRequest(BaseModel):
    """One text or several, and which labels are wanted."""

    model_config = _STRICT | ConfigDict(json_schema_extra={"examples": [{"text": "a small dog kept as a pet", "k": 5}]})

    text: str | None = Field(None, description="One text; or else `texts`.")
    texts: list[str] | None = Field(None, description="Several texts, answered in their order.")
    k: int = Field(5, description="Labels per text; fewer come when fewer pass the other conditions.")
    threshold: float = Field(0.0, allow_inf_nan=False, description="Labels with a lower score are left out.")
    target_precision: float | None = Field(
        None, gt=0, le=1, description="Only labels scored high enough for this precision; a text may get none."
    )
    best_f1: bool = Field(False, description="Only labels scored so high that precision and recall are best together.")
    by_frequency: bool = Field(False, description="The precision is to hold for rare and for frequent labels alike.")
    tail: float | None = Field(
        None, ge=0, le=1, description="Lifts labels of few documents, 0 to 1; scores stay probabilities."
    )
    include: list[str] | None = Field(None, description="If given, only these labels are considered.")
    exclude: list[str] = Field([], description="Labels that are never wanted.")


class Prediction(BaseModel):
    """A label and its score between 0 and 1."""

    label: str
    score: float


class PredictReply(BaseModel):
    """One list a text, best label first."""

    predictions: list[list[Prediction]]


class ExplainRequest(BaseModel):
    """A text and the labels to explain."""

    model_config = _STRICT

    text: str
    labels: list[str]


class TokenPart(BaseModel):
    """What a token of the text adds."""

    token: str
    part: float


class NearText(BaseModel):
    """A training text that has the label, and the cosine of its vector with that of the text asked for."""

    text: str
    cosine: float


class SourceVote(BaseModel):
    """What one source of a blend says: a member, the label's text, the nearest training texts, or their mean."""

    source: str
    score: float = Field(description="Of a member its score, else a cosine or the share of the nearest texts.")
    place: int | None = Field(description="Among the labels that it names.")
    share: float = Field(description="Of the blend's logit: what is lost without this source.")
    tokens: list[TokenPart]


class Label(BaseModel):
    """A label's name, and what it says where the model knows it."""

    label: str
    text: str | None
    count: int | None = Field(description="Training documents with this label, where the model knows it.")


class Explained(Label):
    """Exact: `rest` and the parts of the tokens sum to `value`, the logit. Else `value` is the score, `rest` that of an
    empty text, and a part is the score that is lost without the word."""

    exact: bool
    value: float
    rest: float
    tokens: list[TokenPart]
    unread: int = Field(description="Words at the end of a long text that were not tried, when not exact.")
    votes: list[SourceVote] = Field(description="Of a blend what each of its sources says, the loudest first.")
    nearest: list[NearText] = Field(description="The nearest training texts of the label, where the model carries any.")


class ExplainReply(BaseModel):
    """One explanation a label, in the order asked for."""

    explanations: list[Explained]
    unknown: list[str] = Field(description="Words of the text that no part of the model reads.")


class LabelsReply(BaseModel):
    """Labels found, the best match first; `more` if there are others, `total` with them."""

    labels: list[Label]
    more: bool
    total: int = Field(description="Labels that hold the query, as far as was looked: the first 100,000 places.")


class AddedLabel(BaseModel):
    """A label that the model is to know, from its text and perhaps texts that have it."""

    model_config = _STRICT

    label: str
    text: str
    examples: list[str] = []


class ChangeRequest(BaseModel):
    """Labels to remove, and then labels to add."""

    model_config = _STRICT

    remove: list[str] = []
    add: list[AddedLabel] = []


class ChangeReply(BaseModel):
    """The folder holds this version now; `in_service` if this worker answers with it already."""

    n_labels: int
    version: str
    in_service: bool


class ModelReply(BaseModel):
    """The model in service; `about` is what training recorded."""

    version: str
    loaded: str
    n_labels: int
    stale: bool = Field(description="The folder has changed since; answers are those of the model that was read.")
    limits: dict[str, float]
    thresholds: bool = Field(description="A precision or the best F1 can be asked for.")
    tail: float | None = Field(description="The model's own; null: labels of few documents cannot be lifted.")
    examples: list[str] = Field(description="Texts to try.")
    about: dict[str, Any]


class Health(BaseModel):
    """A sign of life."""

    status: str


class Ready(Health):
    """The model in service answers; `stale` if its folder has changed since it was read."""

    version: str
    stale: bool


class ErrorReply(BaseModel):
    """One sentence: what is wrong, where, what came, what is allowed, what to do."""

    error: str
