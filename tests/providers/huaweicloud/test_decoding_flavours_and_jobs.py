"""Decoding of flavours, add-ons, jobs and the cluster's phase, including malformed ones."""

from __future__ import annotations

import pytest

from chalicelib.providers.huaweicloud import api as api_module
from chalicelib.providers.huaweicloud import decoding
from chalicelib.providers.huaweicloud.models import Addon, Flavor
from chalicelib.providers.kit.errors import Unknown
from infra.emulators.vendor_common.http_messages import scripted
from tests.cases import each_row
from tests.providers.emulated import KeptCache
from tests.providers.huaweicloud.emulated import AZ1 as AZ
from tests.providers.huaweicloud.emulated import CLUSTER, script
from tests.providers.huaweicloud.test_decoding import (
    C7,
    CCE_NODE,
    JOB,
    NODE_POOL,
    OTHER,
    answer,
    many,
)


def test_huawei_api_answer_of_another_kind_is_refused() -> None:
    with pytest.raises(Unknown, match="another thing"):
        decoding.pool_of(answer(NODE_POOL), OTHER)
    with pytest.raises(Unknown, match="another thing"):
        decoding.node_of(answer(CCE_NODE), OTHER)


def test_huawei_api_add_ons_job_and_cluster_phase() -> None:
    addon = {
        "spec": {
            "addonTemplateName": "autoscaler",
            "values": {"custom": {"scaleDownEnabled": True}},
        },
        "status": {"status": "running"},
    }
    job = {
        "kind": "Job",
        "metadata": {"uid": JOB},
        "spec": {"type": "DeleteNode"},
        "status": {"phase": "Running"},
    }
    cluster = {"kind": "Cluster", "status": {"phase": "Available"}}
    cce = script(*[scripted(200, body) for body in (many(addon), job, cluster)])
    api = cce.api()
    assert api.addons() == (Addon("autoscaler", "running", {"scaleDownEnabled": True}),)
    found = api.job(JOB)
    assert (found.phase, found.type, found.reason) == ("Running", "DeleteNode", "")
    assert api.cluster_phase() == "Available"
    assert dict(cce.server.requests[0].query()) == {"cluster_id": CLUSTER}
    odd = answer(
        many(7, {}, {"spec": []}, {"spec": {"addonTemplateName": "x", "values": {"custom": 3}}})
    )
    assert decoding.addons_of(odd) == (Addon("x"),)
    with pytest.raises(Unknown):
        decoding.phase_of(answer({"status": {}}))


def test_huawei_api_flavours_are_read_by_zone_and_cached_for_an_hour() -> None:
    cce = script(*[scripted(200, {"flavors": [C7]})] * 3)
    cce.shared_cache = KeptCache()
    api = cce.api()
    found = api.flavors(AZ)["c7.xlarge.2"]
    assert (found.vcpus, found.memory_mib, found.arch, found.gpu) == (4, 8192, "amd64", None)
    assert (found.sold_out(AZ), found.sold_out("cn-north-4b"), found.sold_out("cn-north-4c")) == (
        False,
        True,
        False,
    )
    api.flavors(AZ)
    cce.clock.advance(3590)
    assert cce.api().flavors(AZ)["c7.xlarge.2"] == found
    assert len(cce.server.requests) == 1
    cce.clock.advance(20)
    cce.api().flavors(AZ)
    cce.api().flavors("")
    assert [dict(request.query()) for request in cce.server.requests] == [
        {"limit": "1000", "availability_zone": AZ},
        {"limit": "1000", "availability_zone": AZ},
        {"limit": "1000"},
    ]


def test_huawei_api_flavours_are_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "FLAVORS", 1)
    second = C7 | {"id": "m7", "name": "m7"}
    cce = script(*[scripted(200, {"flavors": flavors}) for flavors in ([C7], [second], [])])
    assert set(cce.api().flavors(AZ)) == {"c7.xlarge.2", "m7"}
    markers = [dict(request.query()).get("marker") for request in cce.server.requests]
    assert markers == [None, "c7.xlarge.2", "m7"]


@each_row(
    ("extra", "wanted"),
    [
        ({"ecs:instance_architecture": "arm64"}, {"arch": "arm64"}),
        ({"pci_passthrough:alias": "nvidia-p100:1"}, {"gpu": ("nvidia-p100", 1)}),
        (
            {"pci_passthrough:alias": "nvidia-p100:1, ascend-snt9:8 "},
            {"gpu": ("nvidia-p100", 1), "accelerators": (("ascend-snt9", 8),)},
        ),
        (
            {"info:gpus": '[{"name": "nvidia-t4", "count": "2", "memory_mb": 16384}]'},
            {"gpu": ("nvidia-t4", 2)},
        ),
        (
            {"info:asic_accelerators": '[{"name": "ascend-310", "count": 1}]'},
            {"accelerators": (("ascend-310", 1),)},
        ),
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
def test_huawei_api_flavour_status_of_the_zone_overrides_the_regions(
    region: str, zones: str, gone: bool
) -> None:
    extra = {"cond:operation:status": region, "cond:operation:az": zones}
    ((found,), _, _) = decoding.flavors_of(answer({"flavors": [C7 | {"os_extra_specs": extra}]}))
    assert found.sold_out(AZ) is gone


def test_huawei_api_flavour_without_a_size_is_omitted_and_malformed_list_refused() -> None:
    rubbish = [
        7,
        {},
        {"name": "a"},
        {"name": "a", "vcpus": "x", "ram": 1},
        {"name": "a", "vcpus": "0", "ram": 1},
        C7,
    ]
    found, size, last = decoding.flavors_of(answer({"flavors": rubbish}))
    assert ([each.name for each in found], size, last) == (["c7.xlarge.2"], 6, "c7.xlarge.2")
    with pytest.raises(Unknown):
        decoding.flavors_of(answer({"flavors": {}}))


def test_huawei_api_cached_flavour_is_small() -> None:
    assert Flavor("a", 1, 1).states == {}
    ((found,), _, _) = decoding.flavors_of(answer({"flavors": [C7]}))
    assert found.states == {"cn-north-4b": "sellout"}
