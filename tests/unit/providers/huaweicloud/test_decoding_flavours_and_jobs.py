"""Decoding of flavours, add-ons, jobs and the cluster's phase, including malformed ones."""

from __future__ import annotations

import json

import pytest

from chalicelib.providers.errors import Unknown
from chalicelib.providers.http import VendorResponse
from chalicelib.providers.huaweicloud import api as api_module
from chalicelib.providers.huaweicloud import decoding
from chalicelib.providers.huaweicloud.models import Addon, Flavor
from tests.cases import each_row
from tests.unit.providers.huaweicloud.scripted_api import (
    AZ,
    BASE,
    C7,
    CALLS,
    CCE_NODE,
    JOB,
    NODE_POOL,
    OTHER,
    Board,
    HttpScript,
    ScriptedApiClock,
    api_for,
    many,
    said,
)


def answer(body: object) -> VendorResponse:
    return VendorResponse("GET cce.example.com/x", 200, {}, json.dumps(body).encode())


def test_huawei_api_answer_of_another_kind_is_refused() -> None:
    with pytest.raises(Unknown, match="another thing"):
        decoding.pool_of(answer(NODE_POOL), OTHER)
    with pytest.raises(Unknown, match="another thing"):
        decoding.node_of(answer(CCE_NODE), OTHER)


def test_huawei_api_add_ons_job_and_cluster_phase() -> None:
    with HttpScript([said(200, CALLS[name][2]) for name in ("addons", "job", "phase")]) as server:
        api = api_for(server.url)
        assert api.addons() == (Addon("autoscaler", "running", {"scaleDownEnabled": True}),)
        job = api.job(JOB)
        assert (job.phase, job.type, job.reason) == ("Running", "DeleteNode", "")
        assert api.cluster_phase() == "Available"
    assert server.requests[0].query == {"cluster_id": BASE.rpartition("/")[2]}
    odd = answer(many(7, {}, {"spec": []}, {"spec": {"addonTemplateName": "x", "values": {"custom": 3}}}))
    assert decoding.addons_of(odd) == (Addon("x"),)
    with pytest.raises(Unknown):
        decoding.phase_of(answer({"status": {}}))


def test_huawei_api_flavours_are_read_by_zone_and_cached_for_an_hour() -> None:
    clock, cache = ScriptedApiClock(), Board()
    with HttpScript([said(200, {"flavors": [C7]})] * 3) as server:
        api = api_for(server.url, clock=clock, cache=cache)
        found = api.flavors(AZ)["c7.xlarge.2"]
        assert (found.vcpus, found.memory_mib, found.arch, found.gpu) == (4, 8192, "amd64", None)
        assert (found.sold_out(AZ), found.sold_out("cn-north-4b"), found.sold_out("cn-north-4c")) == (
            False,
            True,
            False,
        )
        api.flavors(AZ)
        clock.now += 3590
        assert api_for(server.url, clock=clock, cache=cache).flavors(AZ)["c7.xlarge.2"] == found
        assert len(server.requests) == 1
        clock.now += 20
        api_for(server.url, clock=clock, cache=cache).flavors(AZ)
        api_for(server.url, clock=clock, cache=cache).flavors("")
    assert [dict(seen.query) for seen in server.requests] == [
        {"limit": "1000", "availability_zone": AZ},
        {"limit": "1000", "availability_zone": AZ},
        {"limit": "1000"},
    ]


def test_huawei_api_flavours_are_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "FLAVORS", 1)
    second = C7 | {"id": "m7", "name": "m7"}
    with HttpScript(
        [said(200, {"flavors": [C7]}), said(200, {"flavors": [second]}), said(200, {"flavors": []})]
    ) as server:
        assert set(api_for(server.url).flavors(AZ)) == {"c7.xlarge.2", "m7"}
    assert [seen.query.get("marker") for seen in server.requests] == [None, "c7.xlarge.2", "m7"]


@each_row(
    ("extra", "wanted"),
    [
        ({"ecs:instance_architecture": "arm64"}, {"arch": "arm64"}),
        ({"pci_passthrough:alias": "nvidia-p100:1"}, {"gpu": ("nvidia-p100", 1)}),
        (
            {"pci_passthrough:alias": "nvidia-p100:1, ascend-snt9:8 "},
            {"gpu": ("nvidia-p100", 1), "accelerators": (("ascend-snt9", 8),)},
        ),
        ({"info:gpus": '[{"name": "nvidia-t4", "count": "2", "memory_mb": 16384}]'}, {"gpu": ("nvidia-t4", 2)}),
        ({"info:asic_accelerators": '[{"name": "ascend-310", "count": 1}]'}, {"accelerators": (("ascend-310", 1),)}),
        ({"pci_passthrough:alias": "ascend-snt9:8"}, {"accelerators": (("ascend-snt9", 8),)}),
        ({"info:gpus": "many", "pci_passthrough:alias": "x"}, {}),
        ({"info:gpus": "[1]"}, {}),
        ({"info:gpus": 7}, {}),
        ({"info:gpus": '[{"name": "a", "count": -1}]'}, {}),
        ({"pci_passthrough:alias": "nvidia-v100:0"}, {}),
    ],
)
def test_huawei_api_flavour_fields(extra: dict[str, object], wanted: dict[str, object]) -> None:
    ((found,), _, _) = decoding.flavors_of(answer({"flavors": [C7 | {"os_extra_specs": extra}]}))
    kept = {"arch": found.arch, "gpu": found.gpu, "accelerators": found.accelerators}
    assert kept == {"arch": "amd64", "gpu": None, "accelerators": ()} | wanted


@each_row(
    ("region", "zones", "gone"),
    [
        ("normal", "", False),
        ("sellout", "", True),
        ("abandon", "", True),
        ("obt", "", False),
        ("promotion", "", False),
        ("obt_sellout", "", True),
        ("sellout", f"{AZ}(normal)", False),
        ("normal", f"az0(normal), {AZ}(sellout)", True),
        ("normal", f"{AZ}(", False),
        ("", "rubbish(((", False),
        ("NORMAL", f"{AZ}(SELLOUT)", True),
    ],
)
def test_huawei_api_flavour_status_of_the_zone_overrides_the_regions(region: str, zones: str, gone: bool) -> None:
    extra = {"cond:operation:status": region, "cond:operation:az": zones}
    ((found,), _, _) = decoding.flavors_of(answer({"flavors": [C7 | {"os_extra_specs": extra}]}))
    assert found.sold_out(AZ) is gone


def test_huawei_api_flavour_without_a_size_is_omitted_and_malformed_list_refused() -> None:
    rubbish = [7, {}, {"name": "a"}, {"name": "a", "vcpus": "x", "ram": 1}, {"name": "a", "vcpus": "0", "ram": 1}, C7]
    found, size, last = decoding.flavors_of(answer({"flavors": rubbish}))
    assert ([each.name for each in found], size, last) == (["c7.xlarge.2"], 6, "c7.xlarge.2")
    with pytest.raises(Unknown):
        decoding.flavors_of(answer({"flavors": {}}))


def test_huawei_api_cached_flavour_is_small() -> None:
    assert Flavor("a", 1, 1).states == {}
    ((found,), _, _) = decoding.flavors_of(answer({"flavors": [C7]}))
    assert found.states == {"cn-north-4b": "sellout"}
