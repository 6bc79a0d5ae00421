"""The simulated API server answers the recorded exchanges as the recorded real
kube-apiserver 1.36 did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.emulators.kube.crds import OWN
from tests.contract.kube_api.replay import Exchange, Replay, comparable, load
from tests.reference_data import SHARED, needs_shared

pytestmark = needs_shared

EXCHANGES = load(SHARED / "data" / "kube-api-exchanges.json") if SHARED.is_dir() else []
NAMES = [exchange["name"] for exchange in EXCHANGES]

# Exchanges that the simulation does not answer as recorded, and why. Paging, selectors, the
# three patch types, conflicts,
# eviction, scale, watch and every refusal must never be among them.
UNSUPPORTED: dict[str, str] = {}

# Resources that the real server lists in discovery and the simulation does not serve.
NOT_SERVED = {
    "bindings",
    "componentstatuses",
    "namespaces/finalize",
    "nodes/proxy",
    "pods/attach",
    "pods/ephemeralcontainers",
    "pods/exec",
    "pods/log",
    "pods/portforward",
    "pods/proxy",
    "pods/resize",
    "serviceaccounts/token",
    "services/proxy",
}


@pytest.fixture(scope="module", params=["real-crds", "own-crds"])
def answers(request: pytest.FixtureRequest) -> dict[str, Exchange]:
    directory: Path = OWN if request.param == "own-crds" else SHARED / "data" / "capi-crds"
    return Replay(EXCHANGES, directory).run()


def _by_name(document: dict[str, Any], field: str) -> dict[str, Any]:
    return {each["name"]: each for each in document[field]}


def difference(exchange: Exchange, answer: Exchange) -> str:
    """Returns the difference between the recorded answer and the simulated
    one, "" if there is none."""
    recorded = exchange["response"]
    if recorded["status"] != answer["status"]:
        return f"status {answer['status']} instead of {recorded['status']}: {answer.get('body')}"
    kind = recorded.get("headers", {}).get("Content-Type")
    if kind and answer["headers"]["Content-Type"] != kind:
        return f"content type {answer['headers']['Content-Type']} instead of {kind}"
    field = "stream" if "stream" in recorded else "body"
    wanted, found = comparable(recorded[field]), comparable(answer[field])
    if exchange["name"] in {"core-resources", "capi-resources"}:
        wanted, found = _by_name(wanted, "resources"), _by_name(found, "resources")
        wanted = {name: each for name, each in wanted.items() if name not in NOT_SERVED}
    if exchange["name"] == "api-groups":
        wanted, found = _by_name(wanted, "groups"), _by_name(found, "groups")
    return "" if wanted == found else f"{field}: {_first_difference(wanted, found)}"


def _first_difference(wanted: Any, found: Any, path: str = "") -> str:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in [*wanted, *found]:
            if wanted.get(key, ...) != found.get(key, ...):
                return _first_difference(
                    wanted.get(key, "nothing"), found.get(key, "nothing"), f"{path}.{key}"
                )
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            if one != other:
                return _first_difference(one, other, f"{path}[{index}]")
    return f"{path} is {found!r}, recorded {wanted!r}"


@pytest.mark.parametrize("exchange", EXCHANGES, ids=NAMES)
def test_kube_api_answers_equal_the_recorded_real_server(
    exchange: Exchange, answers: dict[str, Exchange]
) -> None:
    if exchange["name"] in UNSUPPORTED:
        pytest.skip(UNSUPPORTED[exchange["name"]])
    assert difference(exchange, answers[exchange["name"]]) == ""


def test_kube_api_list_of_unsupported_exchanges_is_complete_and_correct(
    answers: dict[str, Exchange],
) -> None:
    differing = {
        name
        for name, exchange in zip(NAMES, EXCHANGES, strict=True)
        if difference(exchange, answers[name])
    }
    print("exchanges not answered as recorded:", sorted(differing) or "none")
    assert differing == set(UNSUPPORTED)


def test_kube_api_all_pages_of_a_list_show_one_version(answers: dict[str, Exchange]) -> None:
    pages = [
        answers[name]["body"]
        for name in ("list-nodes-page-1", "list-nodes-page-2", "list-nodes-page-3-last")
    ]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1


def test_kube_api_refused_write_changes_nothing(answers: dict[str, Exchange]) -> None:
    cordoned, patched = answers["node-after-cordon"]["body"], answers["json-patch-ok"]["body"]
    assert (
        int(patched["metadata"]["resourceVersion"])
        == int(cordoned["metadata"]["resourceVersion"]) + 1
    )
    scaled, emptied = answers["md-scale-merge"]["body"], answers["md-scale-zero"]["body"]
    assert (
        int(emptied["metadata"]["resourceVersion"])
        == int(scaled["metadata"]["resourceVersion"]) + 1
    )
