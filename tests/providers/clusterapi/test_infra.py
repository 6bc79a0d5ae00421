"""Infrastructure objects: lookup, validation of their contents, and limits on waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cluster.errors import ClusterError, Forbidden, NotFound, Unavailable
from chalicelib.providers.clusterapi.models import CapiResource
from chalicelib.providers.clusterapi.node_template import (
    Infrastructure,
    InfrastructureReader,
    read_status,
)
from tests.cases import each_row
from tests.providers.clusterapi.objects import Json, as_resource, deployment

GIB = 2**30
GROUP = "infrastructure.cluster.x-k8s.io"
V2 = {"apiGroup": GROUP, "kind": "BoxTemplate", "name": "t"}
V1 = {
    "apiVersion": f"{GROUP}/v1beta1",
    "kind": "BoxTemplate",
    "name": "t",
    "namespace": "elsewhere",
}
OBJECT = f"/apis/{GROUP}/v1beta1/namespaces/default/boxtemplates/t"


def serving(**versions: dict[str, str]) -> Json:
    """Returns the discovery of the API group: version -> kind -> plural, in the order in
    which the group lists them."""
    answers: Json = {
        f"/apis/{GROUP}": {
            "versions": [{"version": name} for name in versions],
            "preferredVersion": {"version": next(iter(versions), "")},
        }
    }
    for name, kinds in versions.items():
        served = [{"name": plural, "kind": kind} for kind, plural in kinds.items()]
        answers[f"/apis/{GROUP}/{name}"] = {
            "resources": [{"name": "boxes/status", "kind": "BoxTemplate"}, *served]
        }
    return answers


BOTH = serving(v1beta2={"Box": "boxes"}, v1beta1={"Box": "boxes", "BoxTemplate": "boxtemplates"})
FULL = {"status": {"capacity": {"cpu": "2", "memory": "4Gi"}}}


class CapiInfraServer:
    """Answers by path, raises errors, and takes `seconds` for each call."""

    def __init__(self, answers: dict[str, Any], seconds: float = 0.0) -> None:
        self.answers, self.seconds, self.time = answers, seconds, 0.0
        self.calls: list[str] = []
        self.limits: list[tuple[float, float]] = []

    def request(
        self, method: str, path: str, *, timeout: tuple[float, float], attempts: int
    ) -> bytes:
        assert method == "GET"
        self.calls.append(path)
        self.limits.append(timeout)
        self.time += self.seconds
        answer = self.answers.get(path, NotFound("not found", status=404))
        if isinstance(answer, ClusterError):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def list_pages(self, *_: Any, **__: Any) -> list[Any]:
        raise AssertionError("a whole kind is never listed (D12)")

    def reader(self) -> InfrastructureReader:
        """Returns the reader of one reconcile pass."""
        return InfrastructureReader(self, lambda: self.time)  # type: ignore[arg-type]


def using(reference: Json | None, namespace: str = "default", name: str = "md-0") -> CapiResource:
    made = deployment(name, namespace=namespace)
    made["spec"]["template"]["spec"].pop("infrastructureRef")
    if reference is not None:
        made["spec"]["template"]["spec"]["infrastructureRef"] = reference
    return as_resource(made)


def ask(server: CapiInfraServer, reference: Json | None = None) -> Infrastructure:
    return server.reader().of(using(reference or V2))


def test_capi_infra_kind_is_found_in_the_first_version_that_serves_it() -> None:
    server = CapiInfraServer({**BOTH, OBJECT: FULL})
    assert ask(server).capacity == {"cpu": 2000, "memory": 4 * GIB}
    assert server.calls == [
        f"/apis/{GROUP}",
        f"/apis/{GROUP}/v1beta2",
        f"/apis/{GROUP}/v1beta1",
        OBJECT,
    ]


def test_capi_infra_version_that_serves_the_kind_is_not_skipped() -> None:
    newer = OBJECT.replace("v1beta1", "v1beta2")
    served = serving(
        v1beta2={"BoxTemplate": "boxtemplates"}, v1beta1={"BoxTemplate": "boxtemplates"}
    )
    assert ask(CapiInfraServer({**served, newer: FULL})).capacity["cpu"] == 2000


def test_capi_infra_v1beta1_reference_uses_its_version_and_the_owners_namespace() -> None:
    server = CapiInfraServer({**BOTH, OBJECT: FULL})
    assert ask(server, V1).capacity["cpu"] == 2000
    assert server.calls == [f"/apis/{GROUP}/v1beta1", OBJECT]


def test_capi_infra_plural_comes_from_the_server() -> None:
    path = f"/apis/{GROUP}/v1beta1/namespaces/default/boxen/t"
    served = serving(v1beta1={"BoxTemplate": "boxen"})
    assert ask(CapiInfraServer({**served, path: FULL})).capacity["cpu"] == 2000


def test_capi_infra_discovery_and_objects_are_read_once_per_pass() -> None:
    server = CapiInfraServer({**BOTH, OBJECT: FULL, OBJECT[:-1] + "u": FULL})
    reader = server.reader()
    for each in (V2, {**V2, "name": "u"}, V2, V1):
        assert reader.of(using(each)).capacity["cpu"] == 2000
    assert len(server.calls) == 5
    assert server.reader().of(using(V2)).capacity["cpu"] == 2000
    assert len(server.calls) == 9, "the next pass looks again"


@each_row("status", ["403", "404"])
def test_capi_infra_refusal_gives_no_capacity(status: str) -> None:
    error = (
        Forbidden("may not", status=403)
        if status == "403"
        else NotFound("is not there", status=404)
    )
    reported = ask(CapiInfraServer({**BOTH, OBJECT: error}))
    assert reported.capacity == {}
    assert OBJECT in reported.problem
    assert str(error) in reported.problem


def test_capi_infra_missing_permission_is_remembered_per_kind_but_not_a_404() -> None:
    forbidden = Forbidden("may not", status=403)
    server = CapiInfraServer({**BOTH, OBJECT: forbidden, OBJECT[:-1] + "u": FULL})
    reader = server.reader()
    for name in ("t", "u", "v"):
        assert reader.of(using({**V2, "name": name})).capacity == {}
    assert len(server.calls) == 4, "one object was asked for"
    elsewhere = OBJECT.replace("/default/", "/other/")
    server.answers[elsewhere] = FULL
    assert reader.of(using(V2, "other")).capacity["cpu"] == 2000, "a Role may hold in one namespace"
    gone = CapiInfraServer({**BOTH, OBJECT[:-1] + "u": FULL})
    reader = gone.reader()
    assert reader.of(using(V2)).capacity == {}
    assert reader.of(using({**V2, "name": "u"})).capacity["cpu"] == 2000


@each_row("path", [f"/apis/{GROUP}", f"/apis/{GROUP}/v1beta2", f"/apis/{GROUP}/v1beta1"])
@each_row(
    "answer",
    [
        Forbidden("may not", status=403),
        NotFound("gone", status=404),
        Unavailable("down", status=500),
        b"<html>",
        b"",
        b"[" * 5000,
        b'{"resources": 5, "versions": 7}',
        b"\xff",
    ],
)
def test_capi_infra_failed_discovery_gives_no_capacity(path: str, answer: Any) -> None:
    reported = ask(CapiInfraServer({**BOTH, OBJECT: FULL, path: answer}))
    assert reported.capacity == {}
    assert reported.problem


@each_row(
    ("reference", "named"),
    [
        ({"apiGroup": GROUP, "name": "t"}, "kind"),
        ({"apiGroup": GROUP, "kind": "BoxTemplate"}, "name"),
        ({"kind": "BoxTemplate", "name": "t"}, "apiGroup"),
        ({"apiVersion": "v1", "kind": "BoxTemplate", "name": "t"}, "apiGroup"),
        ({"apiGroup": GROUP, "kind": "BoxTemplate", "name": "../../secrets/x"}, "name"),
        ({"apiGroup": f"{GROUP}/../v1", "kind": "BoxTemplate", "name": "t"}, "apiGroup"),
    ],
)
def test_capi_infra_incomplete_reference_is_named_without_a_call(
    reference: Json, named: str
) -> None:
    server = CapiInfraServer({})
    reported = ask(server, reference)
    assert (reported.capacity, server.calls) == ({}, [])
    assert f"no usable {named}" in reported.problem


def test_capi_infra_version_without_resources_is_skipped() -> None:
    empty = {f"/apis/{GROUP}/v1beta2": b'{"resources": null}'}
    assert ask(CapiInfraServer({**BOTH, **empty, OBJECT: FULL})).capacity["cpu"] == 2000
    assert (
        "serves no such kind"
        in ask(CapiInfraServer({f"/apis/{GROUP}": b'{"versions": null}'})).problem
    )


@each_row("reference", [V2, V1, {**V1, "apiVersion": f"{GROUP}/latest"}])
def test_capi_infra_unserved_kind_is_reported(reference: Json) -> None:
    reported = ask(CapiInfraServer(serving(v1beta1={"Box": "boxes"})), reference)
    assert "BoxTemplate default/t: the cluster serves no such kind" in reported.problem


def test_capi_infra_resource_without_a_reference_has_no_error() -> None:
    server = CapiInfraServer({})
    assert server.reader().of(using(None)) == Infrastructure()
    assert server.calls == []


# -- time limits


def test_capi_infra_pass_waits_two_seconds_in_total() -> None:
    server = CapiInfraServer({**BOTH, OBJECT: Unavailable("no answer in time")}, seconds=0.7)
    reader = server.reader()
    reported = [reader.of(using({**V2, "name": f"t{at}"})) for at in range(50)]
    assert server.time <= 2.8
    assert all(not each.capacity and each.problem for each in reported)
    assert "too slow" in reported[-1].problem
    assert all(connect + read <= 2.0 for connect, read in server.limits)


def test_capi_infra_prompt_answers_do_not_use_up_the_time_limit() -> None:
    objects = {f"{OBJECT[:-1]}t{at}": FULL for at in range(300)}
    server = CapiInfraServer({**BOTH, **objects}, seconds=0.05)
    reader = server.reader()
    assert all(reader.of(using({**V2, "name": f"t{at}"})).capacity for at in range(300))


def test_capi_infra_clock_that_goes_back_ends_nothing() -> None:
    server = CapiInfraServer({**BOTH, OBJECT: FULL}, seconds=-3600.0)
    assert ask(server).capacity["cpu"] == 2000


# -- contents of an object


def status(**parts: Any) -> Infrastructure:
    return read_status(json.dumps({"status": parts}).encode(), "BoxTemplate default/t")


@each_row(
    ("given", "found"),
    [
        pytest.param(
            {"cpu": 4, "memory": "16Gi"},
            {"cpu": 4000, "memory": 16 * GIB},
            id="D17-cpu-as-an-integer",
        ),
        pytest.param(
            {"cpu": "3920m", "nvidia.com/gpu": 2},
            {"cpu": 3920, "nvidia.com/gpu": 2},
            id="D17-mixed",
        ),
        pytest.param({"cpu": "2", "memory": ["4Gi"]}, {"cpu": 2000}, id="D17-a-list-costs-itself"),
        pytest.param(
            {"cpu": "2", "memory": None, "x": {}}, {"cpu": 2000}, id="D17-null-and-object"
        ),
        pytest.param(
            {"cpu": 1.5, "memory": True, "pods": "58"}, {"pods": 58}, id="D17-fraction-and-flag"
        ),
        pytest.param({"cpu": "2", "memory": "4GB"}, {"cpu": 2000}, id="D17-no-quantity"),
        pytest.param({"cpu": "-2", "memory": -5, "pods": "9"}, {"pods": 9}, id="D16-negative"),
        pytest.param({"cpu": "0", "memory": 0, "pods": "9"}, {"pods": 9}, id="zero-is-nothing"),
        pytest.param(
            {"no name!": "1", "": "1", "a/b/c": "1", "cpu": "1"},
            {"cpu": 1000},
            id="names-that-are-none",
        ),
        pytest.param({"memory": 10**30}, {"memory": 2**63 - 1}, id="too-much"),
    ],
)
def test_capi_infra_malformed_entry_costs_only_that_entry(
    given: Any, found: dict[str, int]
) -> None:
    assert status(capacity=given).capacity == found


def test_capi_infra_omitted_entries_are_reported_up_to_a_limit() -> None:
    (only,) = status(capacity={"cpu": "1", "memory": "much"}).warnings
    assert only.startswith("BoxTemplate default/t: status.capacity 'memory' was left out: 'much'")
    assert len(status(capacity={f"r{at}": "x" for at in range(1000)}).warnings) == 5


@each_row(
    "body",
    [
        b"",
        b"<html></html>",
        b"null",
        b"[]",
        b"5",
        b'{"status": "fine"}',
        b'{"status": {"capacity": [1]}}',
        b"{}",
        b'{"status": null}',
        b"[" * 100000,
        b"\xff\xfe",
        b'{"status": {"capacity": {}}}',
    ],
)
def test_capi_infra_answer_that_is_not_an_object_has_no_capacity(body: bytes) -> None:
    reported = read_status(body, "BoxTemplate default/t")
    assert (reported.capacity, reported.architecture, reported.system) == ({}, "", "")
    assert "BoxTemplate default/t" in reported.problem


@each_row(
    ("node_info", "architecture", "system"),
    [
        pytest.param(
            {"architecture": "arm64", "operatingSystem": "windows"}, "arm64", "windows", id="both"
        ),
        pytest.param({"architecture": "s390x"}, "s390x", "", id="one"),
        pytest.param({"architecture": "", "operatingSystem": ""}, "", "", id="D19-empty"),
        pytest.param(
            {"architecture": "x86_64", "operatingSystem": "Linux!"}, "", "", id="D19-invalid"
        ),
        pytest.param(
            {"architecture": 5, "operatingSystem": ["linux"]}, "", "", id="D19-of-other-types"
        ),
        pytest.param("arm64", "", "", id="D19-no-object"),
        pytest.param(None, "", "", id="D19-none"),
    ],
)
def test_capi_infra_only_valid_values_are_used(
    node_info: Any, architecture: str, system: str
) -> None:
    reported = status(capacity={"cpu": 1}, nodeInfo=node_info)
    assert (reported.architecture, reported.system, reported.capacity) == (
        architecture,
        system,
        {"cpu": 1000},
    )
