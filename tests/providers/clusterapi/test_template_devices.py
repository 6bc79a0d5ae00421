"""CSI attach limits and DRA devices of new nodes."""

from __future__ import annotations

from chalicelib.providers.clusterapi.node_template import CapiTemplate, make_template
from chalicelib.providers.clusterapi.settings import CapiSettings
from tests.cases import each_row
from tests.providers.clusterapi.objects import CAPACITY, as_resource, capacity, deployment


def template(annotations: dict[str, str]) -> CapiTemplate:
    resource = as_resource(deployment("md-0", annotations=annotations))
    return make_template(
        "MachineDeployment/default/md-0", "MachineDeployment", resource, CapiSettings(), None
    )


def volumes(text: str) -> dict[str, int]:
    return template({**capacity(cpu="1", memory="1Gi"), CAPACITY + "csi-driver": text}).volumes


@each_row(
    "text",
    [
        "ebs.csi.aws.com=25,,=10,x=abc,y=-5,z=25.5,efs=0",
        " ebs.csi.aws.com = 25 , , = 10 , x = abc , y = -5 , z = 25.5 , efs = 0 ",
    ],
)
def test_capi_template_attach_limits_and_invalid_ones(text: str) -> None:
    made = template({**capacity(cpu="1", memory="1Gi"), CAPACITY + "csi-driver": text})
    assert made.volumes == {"ebs.csi.aws.com": 25, "efs": 0}
    assert len(made.warnings) == 4  # =10, x, y and z; the empty entry is not an error


@each_row(
    ("text", "found"),
    [
        ("", {}),
        (",", {}),
        ("a", {}),
        ("a=", {}),
        ("a=2147483647", {"a": 2147483647}),
        ("a=2147483648", {}),
        ("a=1=2", {}),
        ("a=1,a=2", {"a": 2}),
        ("a=" + "9" * 5000, {}),
        ("a=1e3", {}),
        ("a=+5", {"a": 5}),
    ],
)
def test_capi_template_attach_limits_boundary_values(text: str, found: dict[str, int]) -> None:
    assert volumes(text) == found


def test_capi_template_attach_limits_are_read_without_a_capacity() -> None:
    """The group's real nodes may provide the capacity, but no limits yet."""
    made = template({CAPACITY + "csi-driver": "ebs=25"})
    assert made.node is None
    assert made.volumes == {"ebs": 25}


@each_row(
    ("given", "devices"),
    [
        ({"dra_driver": "gpu.nvidia.com", "gpu_count": "2"}, {"gpu.nvidia.com": 2}),
        ({"dra_driver": "gpu.nvidia.com"}, {}),
        ({"dra_driver": "gpu.nvidia.com", "gpu_count": "0"}, {}),
        ({"dra_driver": "gpu.nvidia.com", "gpu_count": "-2"}, {}),
        ({"dra_driver": "", "gpu_count": "2"}, {}),
        ({"dra_driver": "no driver!", "gpu_count": "2"}, {}),
    ],
)
def test_capi_template_devices_need_a_driver_and_a_count(
    given: dict[str, str], devices: dict[str, int]
) -> None:
    made = template(capacity(cpu="1", memory="1Gi", **given))
    assert made.devices == devices
    assert made.node is not None
    assert set(made.node.capacity) == {"cpu", "memory", "pods"}, (
        "devices of a driver are not an extended resource"
    )


def test_capi_template_invalid_device_count_invalidates_the_capacity() -> None:
    made = template(capacity(cpu="1", memory="1Gi", dra_driver="gpu.nvidia.com", gpu_count="two"))
    assert made.node is None
    assert made.devices == {}


def test_capi_template_device_with_type_and_driver_counts_twice_with_a_note() -> None:
    made = template(
        capacity(
            cpu="1",
            memory="1Gi",
            dra_driver="gpu.nvidia.com",
            gpu_type="nvidia.com/gpu",
            gpu_count="2",
        )
    )
    assert made.node is not None
    assert (made.devices, made.node.capacity["nvidia.com/gpu"]) == ({"gpu.nvidia.com": 2}, 2)
    assert len(made.warnings) == 1
