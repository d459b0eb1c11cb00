"""The HTTP interface: parses requests, calls the model and writes responses."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, PlainTextResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from xclearn._version import __version__
from xclearn.errors import ConfigError, DataError, ModelError, XclearnError
from xclearn.inference.thresholds import Threshold
from xclearn.serving.connections import Crowd
from xclearn.serving.editing import Change, Editor, ForbiddenError
from xclearn.serving.gate import PAGE, Guard, Recorder, ShortCut, fail, json_response, refuse, shed
from xclearn.serving.live import Live, Wanted
from xclearn.serving.metrics import Metrics
from xclearn.serving.schemas import (
    ChangeReply,
    ChangeRequest,
    ErrorReply,
    ExplainReply,
    ExplainRequest,
    Health,
    LabelsReply,
    ModelReply,
    PredictReply,
    PredictRequest,
    Ready,
)
from xclearn.serving.settings import Limits, Settings
from xclearn.serving.turns import Busy

_T = TypeVar("_T", bound=BaseModel)
_JSON = "application/json"
_FILES = Path(__file__).parent / "page"
_PAGE_FILES = {
    "index.html": "text/html",
    "page.css": "text/css",
    **{f"{name}.js": "text/javascript" for name in ("page", "shared", "predict", "labels", "card")},
    "icon.svg": "image/svg+xml",
}
_MOST_FOUND = 100  # maximum labels of a search
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply} for status in (400, 401, 403, 404, 405, 408, 413, 421, 422, 503)
}

_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",  # otherwise a browser could mix files of two versions
    "Referrer-Policy": "no-referrer",
}


def create_app(live: Live, metrics: Metrics, settings: Settings, crowd: Crowd) -> ASGIApp:
    """The application; `live` holds the model, `crowd` the connections."""
    app = FastAPI(
        title="xclearn",
        version=__version__,
        description="Short text in, the few right labels out of very many.",
        docs_url=None,  # that page loads scripts from another host
        redoc_url=None,
        responses=_REFUSALS,
    )
    predict = _predict_handler(live, settings.limits)
    app.post("/predict", response_model=PredictReply, openapi_extra=_takes(PredictRequest))(predict)
    _add_refusals(app, metrics)
    _add_questions(app, live, settings.limits)
    _add_editing(app, Editor(settings, live), settings.limits)
    _add_probes(app, live, metrics)
    _add_page(app)
    guard = Guard(ShortCut(app, "POST", "/predict", predict, metrics), settings, metrics, crowd)
    return Recorder(_for_pages_of_others(guard, settings), metrics, crowd)


def _for_pages_of_others(guard: Guard, settings: Settings) -> ASGIApp:
    if not settings.cors_origins:
        return guard
    return CORSMiddleware(
        guard,
        allow_origins=settings.cors_origins,
        allow_methods=("GET", "POST"),
        allow_headers=("Authorization", "Content-Type"),
    )


def _predict_handler(live: Live, limits: Limits) -> Callable[[Request], Awaitable[Response]]:
    async def predict(request: Request) -> Response:
        """Predict the best labels of one or several texts."""
        asked = _read(request, PredictRequest)
        if (asked.text is None) == (asked.texts is None):
            raise ConfigError("give either text or texts", where="body", allowed='{"text": "…"} or {"texts": ["…"]}')
        texts = [asked.text] if asked.text is not None else asked.texts or []
        request.scope["state"]["texts"] = len(texts)  # for the log
        limits.check_texts(texts)
        limits.check_k(asked.k, len(texts))
        limits.check_names([*(asked.include or []), *asked.exclude], "include, exclude")
        threshold = Threshold(asked.threshold, asked.target_precision, asked.best_f1, asked.by_frequency)
        wanted = Wanted(asked.k, asked.include, asked.exclude, threshold, asked.tail)
        return json_response({"predictions": await live.now.predict(texts, wanted)})

    return predict


def _add_questions(app: FastAPI, live: Live, limits: Limits) -> None:
    @app.post("/explain", response_model=ExplainReply, openapi_extra=_takes(ExplainRequest))
    async def explain(request: Request) -> Response:
        """Explain what each token of a text contributes to the scores of some labels."""
        asked = _read(request, ExplainRequest)
        limits.check_texts([asked.text])
        limits.check_names(asked.labels, "labels")
        return json_response(await live.now.explain(asked.text, asked.labels))

    @app.get("/labels", response_model=LabelsReply)
    async def labels(
        q: Annotated[str, Query(max_length=200, description="Part of a label's name or text.")] = "",
        near: Annotated[
            str | None, Query(description="The name of a label, to list its nearest labels instead.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_FOUND)] = 20,
    ) -> Response:
        """Search labels, or list those nearest to a label."""
        return json_response(await (live.now.search(q, limit) if near is None else live.now.near(near, limit)))

    @app.get("/model", response_model=ModelReply)
    async def model() -> Response:
        """The model in service: its labels, settings, data and metrics, and the server's limits."""
        return json_response({**live.now.facts, "stale": live.stale, "limits": asdict(limits)})


def _add_editing(app: FastAPI, editor: Editor, limits: Limits) -> None:
    @app.post("/labels", response_model=ChangeReply, openapi_extra=_takes(ChangeRequest))
    async def change(request: Request) -> Response:
        """Remove and add labels in the model's folder, which all workers then serve."""
        editor.require_token()
        asked = _read(request, ChangeRequest)
        limits.check_names([*asked.remove, *(each.label for each in asked.add)], "add, remove")
        for each in asked.add:
            limits.check_texts([each.label, each.text, *each.examples])
        return json_response(await editor.change(Change(asked.remove, [each.model_dump() for each in asked.add])))


def _takes(kind: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a request body."""
    schema = kind.model_json_schema()
    whole = _inlined(schema, schema.pop("$defs", {}))  # references would be resolved in the whole document
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": whole}}}}


def _inlined(schema: Any, parts: Mapping[str, Any]) -> Any:
    """The schema with references replaced by the parts."""
    if isinstance(schema, list):
        return [_inlined(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {key: _inlined(value, parts) for key, value in schema.items()}


def _read(request: Request, kind: type[_T]) -> _T:
    """The body of a request; FastAPI's own parsing takes four times as long."""
    content_type = dict(request.scope["headers"]).get(b"content-type", b"").decode("latin-1")
    if content_type.partition(";")[0].strip().lower() != _JSON:
        todo = f"Send Content-Type: {_JSON}."
        raise ConfigError("the content type is not JSON", where="Content-Type", got=content_type or None, todo=todo)
    body = request.scope["state"]["body"]
    try:
        return kind.model_validate_json(body)
    except ValidationError:  # the slow path reads more encodings and lone surrogates, and locates errors
        return _read_slowly(body, kind)


def _read_slowly(body: bytes, kind: type[_T]) -> _T:
    try:
        return kind.model_validate(json.loads(body))
    except json.JSONDecodeError as error:
        raise ConfigError("the body is not JSON", where=f"body, character {error.pos}", got=error.msg) from error
    except ValidationError as error:
        raise _our_error(error.errors()[0]) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number with too many digits, or nested too deeply
        raise ConfigError("the body is not JSON", where="body", got=str(error)) from error


def _add_probes(app: FastAPI, live: Live, metrics: Metrics) -> None:
    @app.get("/healthz", response_model=Health)
    async def healthz() -> Response:
        """The process is alive."""
        return json_response({"status": "alive"})

    @app.get("/readyz", response_model=Ready)
    async def readyz() -> Response:
        """The model can predict; tried on this request."""
        await live.now.predict([""], Wanted(1))
        return json_response({"status": "ready", "version": live.now.facts["version"], "stale": live.stale})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics_() -> Response:
        """Counts and durations of all workers, for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    @app.get(PAGE + "{name}", include_in_schema=False)
    async def page(name: str) -> FileResponse:
        if name not in _PAGE_FILES:
            raise HTTPException(404)
        return FileResponse(_FILES / name, headers=_PAGE_HEADERS, media_type=_PAGE_FILES[name])

    @app.get("/", include_in_schema=False)
    async def index() -> FileResponse:
        return await page("index.html")


def _add_refusals(app: FastAPI, metrics: Metrics) -> None:
    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> Response:
        return shed("queue", error, metrics)

    @app.exception_handler(ForbiddenError)
    async def forbidden(_: Request, error: ForbiddenError) -> Response:
        return refuse(403, error)

    @app.exception_handler(ConfigError)
    @app.exception_handler(DataError)
    @app.exception_handler(ModelError)
    async def refused(_: Request, error: XclearnError) -> Response:
        return refuse(422, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return refuse(422, _our_error(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        what, todo = str(error.detail).lower(), "See /openapi.json."
        return refuse(error.status_code, ConfigError(what, where=request.url.path, todo=todo), error.headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> Response:
        return fail()


def _our_error(found: Mapping[str, Any]) -> ConfigError:
    """The first validation error of a request, as our error."""
    place, *inner = [part for part in found["loc"] if part != "query"] or ["body"]
    where = str(place) + "".join(f"[{part}]" for part in inner)
    return ConfigError(found["msg"][0].lower() + found["msg"][1:], where=where, got=found["input"])
