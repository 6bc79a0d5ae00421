"""NodePools of Karpenter: decodes them, and says which pods one of them admits, by the rules
of Karpenter's scheduler.

A pod is admitted where it tolerates the taints of the NodePool, and where its node selector and one
of its required terms agree with the requirements and labels of the NodePool. A label that the
NodePool does not name is agreed to only if Karpenter gives it to nodes by itself, or if the pod
asks for its absence. `minValues`, `weight` and startup taints keep no pod away. Objects
are untrusted: whatever is not understood raises BadInput, and is then not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from chalicelib.cli.doctor.running_autoscalers import RawObjects
from chalicelib.cluster.api_types import Quantity
from chalicelib.cluster.client import KubeClient, path_segment
from chalicelib.cluster.errors import NotFound
from chalicelib.cluster.node_decoding import unreadable_object
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.label_values import (
    ABSENT,
    ANYTHING,
    LabelRequirements,
    LabelValues,
    allowed_values,
)
from chalicelib.model.node import Taint
from chalicelib.model.pod import PodClass
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.model.selector import Requirement
from chalicelib.plan.predicates import untolerated

GROUP = "karpenter.sh"
POOL_LABEL = f"{GROUP}/nodepool"
MOST_POOLS = 100
"""NodePools that are judged."""
_MOST_REQUIREMENTS, _MOST_VALUES, _MOST_TAINTS = 200, 10_000, 200  # of one NodePool
# Labels that every provider of Karpenter gives to its nodes by itself.
_WELL_KNOWN = frozenset({
    "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build", "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
})  # fmt: skip
_OLD_NAMES = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
}


def _combined(requirements: Iterable[Requirement]) -> dict[str, LabelValues]:
    """Return what is allowed of each label by all of these requirements together."""
    allowed: dict[str, LabelValues] = {}
    for requirement in requirements:
        key = _OLD_NAMES.get(requirement.key, requirement.key)
        allowed[key] = allowed.get(key, ANYTHING).common(allowed_values(requirement))
    return allowed


# -- NodePools


class _PoolMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    deletion_timestamp: str | None = None


class _TemplateMeta(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None


class _TemplateSpec(msgspec.Struct, frozen=True):
    requirements: tuple[Requirement, ...] | None = None
    taints: tuple[Taint, ...] | None = None


class _PoolTemplate(msgspec.Struct, frozen=True):
    metadata: _TemplateMeta | None = None
    spec: _TemplateSpec | None = None


class _PoolSpec(msgspec.Struct, frozen=True):
    template: _PoolTemplate = _PoolTemplate()
    limits: dict[str, Quantity] | None = None
    replicas: int | None = None


class _PoolStatus(msgspec.Struct, frozen=True):
    resources: dict[str, Quantity] | None = None


class _PoolObject(msgspec.Struct, frozen=True):
    metadata: _PoolMeta
    spec: _PoolSpec = _PoolSpec()
    status: _PoolStatus | None = None


class NodePool(msgspec.Struct, frozen=True):
    """A NodePool of Karpenter. buys: whether it makes nodes for pods: it is not being deleted,
    has no fixed number of nodes, and has reached none of its limits. problem: why it could not
    be judged, "" if it could."""

    name: str
    requirements: LabelRequirements = {}
    taints: tuple[Taint, ...] = ()
    buys: bool = True
    problem: str = ""

    def admits(self, pod_class: PodClass, terms: Iterable[LabelRequirements]) -> bool:
        """Return whether it would make a node for a pod. terms: what the pod asks of labels, one
        for each of its alternatives (`alternatives`)."""
        is_tolerated = untolerated(pod_class.tolerations, self.taints) is None
        return is_tolerated and any(self._agrees(requirements) for requirements in terms)

    def _agrees(self, requirements: LabelRequirements) -> bool:
        for key, values in requirements.items():
            own = self.requirements.get(key)
            if own is not None:
                if not own.agrees(values):
                    return False
            elif values.operator not in ABSENT and not _is_given_by_karpenter(key):
                return False
        return True


def _is_given_by_karpenter(key: str) -> bool:
    """Return whether nodes of Karpenter may have a label that their NodePool does not name: each of
    its providers has further ones, under a domain with this word."""
    return key in _WELL_KNOWN or "karpenter" in key.partition("/")[0]


def alternatives(pod_class: PodClass) -> tuple[LabelRequirements, ...]:
    """Return what a pod asks of the labels of a node, once per required term; () if
    no new node can have it."""
    selected = [Requirement(key, "In", (value,)) for key, value in pod_class.node_selector.items()]
    if pod_class.required_affinity is None:
        return (_combined(selected),)
    asked = []
    for term in pod_class.required_affinity:
        if term.fields or not term.expressions:  # a node that exists, or none
            continue
        try:
            asked.append(_combined([*selected, *term.expressions]))
        except BadInput:  # such a requirement matches no node
            continue
    return tuple(asked)


class _PreferredVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _ApiGroup(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _PreferredVersion = _PreferredVersion()


def read_pools(client: KubeClient) -> tuple[NodePool, ...]:
    """Return the NodePools of a cluster, at most one more than are judged; () where it does not
    serve them. Raises ClusterError."""
    try:
        version = client.read(f"/apis/{GROUP}", _ApiGroup).preferred_version.version
        return tuple(_read(client, f"/apis/{GROUP}/{path_segment(version)}/nodepools"))
    except NotFound:
        return ()


def _read(client: KubeClient, path: str) -> Iterator[NodePool]:
    number = 0
    for page in client.list_pages(path, limit=MOST_POOLS + 1):
        for raw in msgspec.json.decode(page.body, type=RawObjects).items or ():
            yield decode_pool(bytes(raw))
            number += 1
            if number > MOST_POOLS:
                return


def decode_pool(raw: bytes) -> NodePool:
    """Return one NodePool. Never raises: what is wrong is its problem."""
    try:
        return _pool(msgspec.json.decode(raw, type=_PoolObject))
    except MALFORMED as error:
        problem = f"{error.place}: {error.problem}" if isinstance(error, BadInput) else str(error)
        return NodePool(unreadable_object(raw).name or "without a name", problem=problem[:200])


def _pool(pool: _PoolObject) -> NodePool:
    spec, meta = pool.spec, pool.metadata
    template = spec.template.spec or _TemplateSpec()
    requirements, taints = template.requirements or (), template.taints or ()
    labels = (spec.template.metadata.labels if spec.template.metadata is not None else None) or {}
    values = sum(len(requirement.values) for requirement in requirements)
    if (
        len(requirements) + len(labels) > _MOST_REQUIREMENTS
        or values > _MOST_VALUES
        or len(taints) > _MOST_TAINTS
    ):
        raise BadInput("spec.template", "has too many requirements, labels or taints", "shorten it")
    asked = [
        *requirements,
        *(Requirement(key, "In", (value,)) for key, value in labels.items()),
        Requirement(POOL_LABEL, "In", (meta.name,)),
    ]
    is_full = _is_full(
        spec.limits or {}, (pool.status.resources if pool.status is not None else None) or {}
    )
    return NodePool(
        meta.name[:253],
        _combined(asked),
        taints,
        buys=meta.deletion_timestamp is None and spec.replicas is None and not is_full,
    )


def _is_full(limits: Mapping[str, Any], used: Mapping[str, Any]) -> bool:
    """Return whether a limit is reached. A resource of which nothing is in use counts as 0."""
    for resource, limit in limits.items():
        amount = parse_amount(resource, quantity_text(used.get(resource, 0)))
        if amount >= parse_amount(resource, quantity_text(limit)):
            return True
    return False
