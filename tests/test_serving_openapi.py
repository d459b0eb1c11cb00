"""The server against requests made up from its own OpenAPI document, right ones and wrong ones."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from served import Server, model_folder, served

schemathesis = pytest.importorskip("schemathesis")

PATHS = ("/predict", "/explain", "/labels", "/model", "/healthz", "/readyz", "/metrics")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(model_folder()) as running:
        yield running


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")


def test_every_path_is_tried(document: Any) -> None:
    assert set(document) == set(PATHS)


ASKED = (("post", "/predict"), ("post", "/explain"), ("get", "/labels"))
CASES = [
    *((method, path, 200) for method, path in (*ASKED, *(("get", path) for path in PATHS[3:]))),
    *((method, path, 422) for method, path in ASKED),  # the others take nothing
    ("post", "/labels", 403),  # of a server without a token
]


@pytest.mark.parametrize(("method", "path", "status"), CASES)
def test_every_answer_is_as_documented_and_none_is_a_failure_of_the_server(
    document: Any, method: str, path: str, status: int
) -> None:
    checks, mode = schemathesis.checks, schemathesis.GenerationMode
    operation, right = document[path][method.upper()], status != 422
    statuses = []

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode.POSITIVE if right else mode.NEGATIVE))
    def each(case: Any) -> None:
        reply = case.call_and_validate(
            checks=[
                checks.not_a_server_error,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
                checks.negative_data_rejection,
            ]
        )
        statuses.append(reply.status_code)

    each()
    assert len(statuses) >= (60 if path in PATHS[:3] else 1)
    assert status in statuses
