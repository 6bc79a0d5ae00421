"""docs/reference/openapi.yaml describes the API: the same routes, and requests made from it
get answers that it has.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app import app
from chalicelib.functions.hosted_page import COOKIE, SESSION, SESSION_FOR, new_grant, written
from chalicelib.runtime.runtime import install
from chalicelib.store import JournalEntry
from infra.emulators.api_gateway import ApiGatewayFront
from tests.functional.app_client import BEARER, AppClient
from tests.source_trees import ROOT

DOCUMENT: dict[str, Any] = yaml.safe_load(
    (ROOT / "docs" / "reference" / "openapi.yaml").read_text("utf-8")
)
KEY, PAGE_KEY = "key-of-a-reader-in-tests", "k" * 40
EXAMPLES, SEED = 10, 20300131
OPERATIONS = [
    (method.upper(), path, operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method != "parameters"
]
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


def served_routes() -> set[tuple[str, str]]:
    return {(method, path) for path, methods in app.routes.items() for method in methods}


def test_document_is_valid_openapi() -> None:
    validate(DOCUMENT)
    assert len({operation["operationId"] for _, _, operation in OPERATIONS}) == len(OPERATIONS)


def test_document_has_the_routes_of_the_app_and_no_other() -> None:
    assert {(method, path) for method, path, _ in OPERATIONS} == served_routes()


def test_document_says_which_routes_need_a_key_or_a_signature_of_aws() -> None:
    schemes = {(method, path): {name for each in operation.get("security", DOCUMENT["security"])
                                for name in each}
               for method, path, operation in OPERATIONS}  # fmt: skip
    guarded = {
        (method, path): bool(cast(Any, entry).authorizer or cast(Any, entry).api_key_required)
        for path, methods in app.routes.items()
        for method, entry in methods.items()
    }
    assert {route: "iam" in names for route, names in schemes.items()} == guarded


class ServedApi(msgspec.Struct, frozen=True):
    """The app behind an emulated API Gateway. cluster: has decisions. headers: of a
    caller with every credential."""

    url: str
    cluster: str
    headers: dict[str, str]


@pytest.fixture
def api(desk: AppClient) -> Iterator[ServedApi]:
    name = desk.cluster()
    for number in range(3):
        entry = JournalEntry(
            desk.clock() - 60 * number,
            "plan",
            f"p{number}",
            facts={"gaps": 0},
            body='{"groups": []}',
        )
        desk.store.journal.append(name, entry)
    desk.store_text(desk.cluster(), "kind: Cluster")

    def read_secret(secret: str) -> str:
        return PAGE_KEY if secret == "page-key" else desk.runtime.read_secret(secret)

    install(dataclasses.replace(desk.runtime, page_key="page-key", read_secret=read_secret))
    front = ApiGatewayFront(lambda event: dict(cast(Any, app)(event, None)), KEY)
    grant = new_grant(desk.clock(), SESSION_FOR, None)
    cookie = written(grant, SESSION, desk.store.table.name, PAGE_KEY.encode())
    headers = {
        "x-api-key": KEY,
        "Authorization": f"Bearer {BEARER}",
        "Cookie": f"{COOKIE}={cookie}",
    }
    yield ServedApi(front.start(), name, headers)
    front.stop()


def answers(api: ServedApi, mode: GenerationMode, headers: dict[str, str]) -> dict[str, set[int]]:
    """Sends requests made from the document; each answer must be one that it
    describes. Returns the statuses."""
    statuses: dict[str, set[int]] = {}
    for result in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # a path is never wrong, only unknown
        named = {"name": api.cluster} if "{name}" in operation.path else None
        seen = statuses.setdefault(f"{operation.method.upper()} {operation.path}", set())
        for path_parameters in (None, named) if named else (None,):
            try:
                cases = operation.as_strategy(mode, path_parameters=path_parameters)
                _requests(api.url, cases, headers, seen)
            except Unsatisfiable:
                continue  # nothing of the operation can be wrong
    return statuses


def _requests(
    url: str, cases: SearchStrategy[schemathesis.Case[Any]], headers: dict[str, str], seen: set[int]
) -> None:
    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def request(case: schemathesis.Case[Any]) -> None:
        response = case.call(base_url=url, headers=headers, allow_redirects=False)
        seen.add(response.status_code)
        case.validate_response(response, checks=list(CHECKS))

    request()


def test_every_answer_to_a_request_of_the_document_is_described_there(api: ServedApi) -> None:
    statuses = answers(api, GenerationMode.POSITIVE, api.headers)
    assert len(statuses) == len(OPERATIONS)
    answered = {route for route, seen in statuses.items() if min(seen) < 300}
    # Links and files of the page have names that only the app knows.
    assert answered == {route for route in statuses if not re.search(r"\{(?!name\}|page\})", route)}
    assert len(answered) > 10
    assert {400, 404} <= set.union(*statuses.values())


def test_every_answer_to_a_wrong_request_is_described(api: ServedApi) -> None:
    statuses = answers(api, GenerationMode.NEGATIVE, api.headers)
    assert 400 in statuses["GET /clusters/{name}/decisions"]
    assert set.union(*statuses.values()) <= {200, 202, 303, 400, 401, 403, 404, 413}


def test_caller_without_a_credential_gets_what_the_document_says(api: ServedApi) -> None:
    statuses = answers(
        api, GenerationMode.POSITIVE, {"x-api-key": "", "Authorization": "", "Cookie": ""}
    )
    guarded = {
        f"{method} {path}"
        for method, path, operation in OPERATIONS
        if operation.get("security") is None
    }
    assert len(guarded) == 4
    assert {statuses[route] == {403} for route in guarded} == {True}
    assert statuses["POST /clusters/{name}/events"] <= {400, 401, 404}
    assert statuses["GET /ui"] == {401}


def test_answer_that_the_document_does_not_describe_is_detected(api: ServedApi) -> None:
    """The checks can fail: the same requests against a document that promises another field."""
    schema = DOCUMENT["components"]["schemas"]["Summary"]
    broken = json.loads(json.dumps(DOCUMENT))
    broken["components"]["schemas"]["Summary"]["required"] = [*schema["required"], "nothing"]
    operation = schemathesis.openapi.from_dict(broken)["/clusters"]["GET"]
    with pytest.raises(FailureGroup):
        _requests(api.url, operation.as_strategy(), api.headers, set())
