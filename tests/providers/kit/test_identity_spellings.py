"""Contested identities: one machine under two spellings of its id, or claimed by two
Nodes; no claim is believed.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.providers.alicloud.provider_ids import AlicloudGroupNames as AliNames
from chalicelib.providers.cherryservers.decoding import CherryServer
from chalicelib.providers.cherryservers.instances import Matching, ServerList
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames as ExoNames
from chalicelib.providers.huaweicloud.models import CceNode
from chalicelib.providers.huaweicloud.provider_ids import CceGroupNames as CceNames
from tests.builders import node
from tests.cases import each_row

UUID, OTHER = "4d2b9f0e-3c1a-4b62-9a51-0f6f4f1f2a01", "77e0c1aa-52d3-4f1e-8a7e-6c0b8d9e2b02"
SERVER = "5b504f8d-33f1-4ab7-a600-b62dac967d72"
Said = Sequence[tuple[str, str]]  # (name, providerID) of each Node


def _alicloud(said: Said) -> tuple[str, ...]:
    return AliNames([node(name, provider_id=text) for name, text in said], "cn-hangzhou").claimants(
        "i-1"
    )


def _exoscale(said: Said) -> tuple[str, ...]:
    called = {"machine": UUID, "second": OTHER}
    return ExoNames([node(name, provider_id=text) for name, text in said], called).claimants(UUID)


def _cherry(said: Said) -> tuple[str, ...]:
    roll = ServerList(
        [CherryServer(1000, hostname="machine"), CherryServer(1001, hostname="second")]
    )
    return Matching([node(name, provider_id=text) for name, text in said], roll, ()).claimants(
        roll.by_id[1000]
    )


def _huawei(said: Said) -> tuple[str, ...]:
    machines = [
        CceNode(UUID, "machine", server=SERVER, private_ip="10.0.0.1"),
        CceNode(OTHER, "second", private_ip="10.0.0.2"),
    ]
    return CceNames(
        [
            node(name, provider_id=text, labels={"kubernetes.io/hostname": name})
            for name, text in said
        ],
        machines,
    ).claimants(UUID)


TRUE = {
    _alicloud: ("y", "cn-hangzhou.i-1"),
    _exoscale: ("machine", f"exoscale://{UUID}"),
    _cherry: ("machine", "cherryservers://1000"),
    _huawei: ("10.0.0.1", UUID),
}


@each_row(
    ("vendor", "provider_id"),
    [
        (_alicloud, "cn-hangzhou.i-1"),
        (_alicloud, "alicloud://cn-hangzhou.i-1"),
        (_alicloud, "cn-hangzhou.I-1"),
        (_alicloud, "cn-hangzhou-i.i-1"),
        (_alicloud, "cn-beijing.i-1"),
        (_alicloud, "ecs:///cn-hangzhou.i-1"),
        (_alicloud, " cn-hangzhou.i-1 "),
        (_alicloud, "i-1"),
        (_exoscale, f"exoscale://{UUID}"),
        (_exoscale, f"exoscale://{UUID.upper()}"),
        (_exoscale, f"exoscale:///{UUID}"),
        (_exoscale, f"exoscale://ch-gva-2/{UUID}"),
        (_exoscale, UUID),
        (_exoscale, f"EXOSCALE://{UUID}"),
        (_cherry, "cherryservers://1000"),
        (_cherry, "1000"),
        (_cherry, "CherryServers://1000"),
        (_cherry, "cherryservers:///1000"),
        (_cherry, " 1000"),
        (_cherry, "cherryservers://LT/1000"),
        (_huawei, UUID),
        (_huawei, UUID.upper()),
        (_huawei, f"cce:///cn-north-4/{UUID}"),
        (_huawei, SERVER),
        (_huawei, f"huaweicloud://{SERVER.upper()}"),
    ],
)
@each_row("name", ["000", "zzz"])
def test_machine_under_two_spellings_of_its_id_is_contested(
    vendor: object, provider_id: str, name: str
) -> None:
    ask = vendor
    honest = TRUE[ask]  # type: ignore[index]
    thief = (name, provider_id)
    for said in ([honest, thief], [thief, honest]):
        assert ask(said) == tuple(sorted((honest[0], name)))  # type: ignore[operator]
    assert ask([honest]) == ()  # type: ignore[operator]


@each_row(
    ("vendor", "said", "claimants"),
    [
        (_exoscale, [("machine", ""), ("x", f"exoscale://{UUID}")], ("machine", "x")),
        (_exoscale, [("machine", f"exoscale://{OTHER}")], ("machine",)),
        (_exoscale, [("machine", "aws:///i-1")], ("machine",)),
        (_exoscale, [("second", f"exoscale://{UUID}")], ("second",)),
        (_exoscale, [("x", f"exoscale://{UUID}"), ("other", "")], ()),
        (_cherry, [("machine", ""), ("x", "1000")], ("machine", "x")),
        (_cherry, [("machine", "1001")], ("machine",)),
        (_cherry, [("machine", "aws:///i-1")], ("machine",)),
        (_cherry, [("second", "1000")], ("second",)),
        (_cherry, [("MACHINE", "")], ()),
        (_cherry, [("x", "hcloud://1000"), ("machine", "1000")], ()),
        (_huawei, [("10.0.0.1", ""), ("x", UUID)], ("10.0.0.1", "x")),
        (_huawei, [("machine", ""), ("x", UUID)], ("machine", "x")),
        (_huawei, [("10.0.0.1", OTHER)], ("10.0.0.1",)),
        (_huawei, [("10.0.0.2", UUID)], ("10.0.0.2",)),
        (_huawei, [("10.0.0.1", "elsewhere")], ()),
        (_huawei, [("machine", ""), ("10.0.0.1", UUID)], ()),
    ],
)
def test_names_and_addresses_count_in_addition_to_ids(
    vendor: object, said: Said, claimants: tuple[str, ...]
) -> None:
    assert vendor(said) == claimants  # type: ignore[operator]
    assert vendor(list(reversed(said))) == claimants  # type: ignore[operator]
