"""Whatever one Cluster API object contains, the provider answers, and the
other groups are unaffected.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable

import msgspec

from chalicelib.providers.clusterapi.api import DEPLOYMENT, MACHINE, POOL, SET, decode
from chalicelib.providers.clusterapi.capi_state import CapiState
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource
from chalicelib.providers.clusterapi.node_groups import make_groups
from chalicelib.providers.clusterapi.settings import read_settings
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import Transient
from tests.cases import each_row
from tests.property.corrupted_objects import HOSTILE
from tests.providers.clusterapi.objects import Json, deployment, machine, machine_set, node, pool

OURS = node("control-plane", "c:///cp")
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_MADE = {DEPLOYMENT: deployment, SET: machine_set, POOL: pool}


def _observed(objects: Iterable[Json]) -> Observation:
    """Observes as the provider reads lists: an undecodable object is omitted."""
    resources: dict[str, list[CapiResource]] = {}
    machines: list[CapiMachine] = []
    for each in objects:
        try:
            body, kind = msgspec.Raw(msgspec.json.encode(each)), str(each["kind"])
            if kind == MACHINE:
                machines.append(decode(body, CapiMachine))
            else:
                resources.setdefault(kind, []).append(decode(body, CapiResource))
        except (Transient, OverflowError):  # OverflowError: it cannot be encoded as JSON here
            continue
    return make_groups(
        CapiState({kind: tuple(found) for kind, found in resources.items()}, tuple(machines)),
        (OURS,),
        read_settings({}),
        (),
    )


@each_row(
    "text",
    [
        "1e" + "9" * 5_000,
        "9" * 200_000,
        "1e-9999",
        "NaN",
        "inf",
        "\u0661",
        "0x10",
        "1Ki1",
        "-" + "9" * 5_000,
        "x" * 1_000_000,
    ],
)
@each_row("name", ["cpu", "memory", "ephemeral-disk", "gpu-count", "maxPods"])
def test_capi_invalid_capacity_costs_its_group_only_the_template(name: str, text: str) -> None:
    wrong = deployment(
        "wrong",
        annotations={CAPACITY + "cpu": "2", CAPACITY + "memory": "4Gi", CAPACITY + name: text},
    )
    seen = _observed([deployment("good"), wrong])
    by_id = {group.id.rpartition("/")[2]: group for group in seen.groups}
    assert by_id["good"] == next(iter(_observed([deployment("good")]).groups))
    assert "wrong" not in by_id or by_id["wrong"].template is None


@each_row("kind", sorted([*_MADE, MACHINE]))
def test_capi_no_object_affects_another_group(kind: str) -> None:
    good = [deployment(f"md-{at}") for at in range(3)]
    expected = _observed(good).groups
    for seed in range(120):
        draw = random.Random(f"{kind} {seed}")
        made = copy.deepcopy(
            machine("hostile", "hostile") if kind == MACHINE else _MADE[kind]("hostile")
        )
        holder = draw.choice([each for each in _mappings(made) if each])
        key = draw.choice(sorted(holder))
        if not (holder is made and key == "kind") and key not in {"namespace", "clusterName"}:
            holder[key] = copy.deepcopy(draw.choice(HOSTILE))
            seen = {group.id: group for group in _observed([*good, made]).groups}
            assert [seen.get(group.id) for group in expected] == list(expected), made


def _mappings(value: object) -> list[Json]:
    if isinstance(value, dict):
        return [value, *(each for part in value.values() for each in _mappings(part))]
    return [each for part in value for each in _mappings(part)] if isinstance(value, list) else []
