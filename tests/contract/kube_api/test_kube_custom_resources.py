"""CustomResourceDefinitions in the simulated API server: schemas, versions, creation and
deletion.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.model.errors import BadInput
from infra.emulators.kube import crds
from infra.emulators.kube.store import ObjectStore
from tests.contract.kube_api.cluster import NOW, Caller, caller, machine_deployment
from tests.reference_data import SHARED, needs_shared

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/things"
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]*$"},
                "parts": {"type": "array", "minItems": 1, "items": {"type": "string"}},
                "amount": {"x-kubernetes-int-or-string": True},
            },
        }
    },
}
THING_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
        ],
    },
}


@pytest.fixture
def call() -> Caller:
    made = caller()
    assert made("POST", CRDS, THING_CRD).status == 201
    return made


def _thing(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "t"},
        "spec": spec,
    }


def test_crd_defaults_are_filled_and_unknown_fields_dropped(call: Caller) -> None:
    made = call("POST", THINGS, _thing(size=2, amount="5Gi", nonsense=1)).json()
    assert made["spec"] == {"size": 2, "amount": "5Gi", "colour": "red"}


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({}, "FieldValueRequired", "spec.size"),
        ({"size": 0}, "FieldValueInvalid", "spec.size"),
        ({"size": 10}, "FieldValueInvalid", "spec.size"),
        ({"size": 1.5}, "FieldValueTypeInvalid", "spec.size"),
        ({"size": 1, "colour": "green"}, "FieldValueNotSupported", "spec.colour"),
        ({"size": 1, "name": "abcd"}, "FieldValueTooLong", "spec.name"),
        ({"size": 1, "name": "A"}, "FieldValueInvalid", "spec.name"),
        ({"size": 1, "parts": []}, "FieldValueInvalid", "spec.parts"),
        ({"size": 1, "parts": [7]}, "FieldValueTypeInvalid", "spec.parts[0]"),
    ],
)
def test_crd_schema_is_enforced(
    call: Caller, spec: dict[str, Any], reason: str, field: str
) -> None:
    refused = call("POST", THINGS, _thing(**spec))
    cause = refused.json()["details"]["causes"][0]
    assert (refused.status, cause["reason"], cause["field"]) == (422, reason, field)


def test_crd_is_served_until_it_is_deleted(call: Caller) -> None:
    assert call("GET", "/apis/example.com/v1").json()["resources"][0]["name"] == "things"
    call("POST", THINGS, _thing(size=1))
    assert call("DELETE", f"{CRDS}/things.example.com").status == 200
    assert (call("GET", THINGS).status, call("GET", "/apis/example.com").status) == (404, 404)
    assert call("DELETE", "/api/v1/namespaces/app").status == 200


def test_crd_incomplete_definition_is_refused(call: Caller) -> None:
    bad = {**THING_CRD, "metadata": {"name": "bad.example.com"}, "spec": {"group": "example.com"}}
    assert (call("POST", CRDS, bad).status, call("GET", f"{CRDS}/bad.example.com").status) == (
        422,
        404,
    )


@needs_shared
def test_crd_real_cluster_api_schema_is_enforced() -> None:
    call = caller(crd_directory=SHARED / "data" / "capi-crds")
    path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/app/machinedeployments"
    bad = machine_deployment("md")
    bad["spec"]["template"]["spec"]["infrastructureRef"] = {
        "apiVersion": "v1",
        "kind": "Template",
        "name": "t",
    }
    refused = call("POST", path, bad)
    assert [each["field"] for each in refused.json()["details"]["causes"]] == [
        "spec.template.spec.infrastructureRef.apiGroup"
    ]
    assert call("POST", path, machine_deployment("md")).status == 201


def test_crd_incomplete_definition_is_a_client_error(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "kind: CustomResourceDefinition\nmetadata: {name: x.example.com}\nspec: {}\n"
    )
    with pytest.raises(BadInput, match=r"x\.example\.com"):
        crds.load(ObjectStore(lambda: NOW), tmp_path)
