"""For any content of annotations and infrastructure objects, a template is built
or the reason is reported.
"""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.models import CAPACITY, CapiAnnotations
from chalicelib.providers.clusterapi.node_groups import read_options
from chalicelib.providers.clusterapi.node_template import Infrastructure, make_template, read_status
from chalicelib.providers.clusterapi.settings import CapiSettings
from tests.providers.clusterapi.objects import as_resource, deployment

_NAMES = (
    "cpu",
    "memory",
    "ephemeral-disk",
    "gpu-type",
    "gpu-count",
    "maxPods",
    "dra-driver",
    "csi-driver",
    "labels",
    "taints",
)
_NEAR = st.from_regex(
    r"[ +-]?[0-9]{0,40}(\.[0-9]{0,3})?(m|k|Gi|E|e[0-9]{1,4})?([=:,][a-z0-9./ -]{0,9}){0,3}",
    fullmatch=True,
)
_TEXTS = st.one_of(_NEAR, st.text(max_size=30))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS, inner, max_size=2),
    max_leaves=4,
)
_RESOURCES = st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "x"]) | _TEXTS
_STATUS = st.fixed_dictionaries(
    {},
    optional={
        "capacity": st.dictionaries(_RESOURCES, _JSON, max_size=5) | _JSON,
        "nodeInfo": _JSON,
    },
)


def _is_sound(node: Node) -> bool:
    amounts = [*node.capacity.values(), *node.allocatable.values()]
    return (
        all(0 <= amount < 2**63 for amount in amounts)
        and node.capacity["cpu"] > 0
        and node.capacity["memory"] > 0
        and node.capacity["pods"] > 0
        and all(node.labels[f"kubernetes.io/{key}"] for key in ("arch", "hostname"))
    )


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(_NAMES), _TEXTS), _STATUS)
def test_capi_template_survives_arbitrary_annotations(
    annotations: dict[str, str], status: object
) -> None:
    reported = read_status(json.dumps({"status": status}).encode(), "x")
    keyed = {CAPACITY + name: text for name, text in annotations.items()}
    resource = as_resource(deployment("md-0", annotations=keyed))
    made = make_template(
        "g", "MachineDeployment", resource, CapiSettings(), None, lambda *_: reported
    )
    assert (made.node is None) == bool(made.problem)
    assert (
        made.node is None
        or "kubernetes.io/arch=" in keyed.get(CAPACITY + "labels", "")
        or _is_sound(made.node)
    )
    assert all(0 <= limit < 2**31 for limit in made.volumes.values())
    assert all(count > 0 for count in made.devices.values())


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | _JSON.map(lambda found: json.dumps(found).encode()))
def test_capi_template_survives_arbitrary_infrastructure_objects(body: bytes) -> None:
    reported = read_status(body, "x")
    assert all(0 < amount < 2**63 for amount in reported.capacity.values())
    assert isinstance(reported, Infrastructure)


@settings(max_examples=60, deadline=None)
@given(_TEXTS)
def test_capi_group_survives_arbitrary_options(text: str) -> None:
    prefix = CapiAnnotations().options
    names = ("scaledownutilizationthreshold", "scaledownunneededtime", "zeroormaxnodescaling")
    options, _ = read_options({prefix + name: text for name in names}, CapiAnnotations())
    assert options.scale_down_unneeded_time is None or options.scale_down_unneeded_time >= 0
