"""Implements NodeApi on chalicelib.cluster, decoding only the few fields that a removal needs.

The connection is opened at the first use, because an operation that only calls a vendor needs none.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from chalicelib.cluster import objects
from chalicelib.cluster.client import LazyKubeClient
from chalicelib.cluster.errors import Forbidden, NotFound, Unavailable
from chalicelib.model.node import DELAY_DELETION_PREFIX, SCALE_DOWN_DISABLED, Condition, Taint
from chalicelib.model.operation import OPERATION_ANNOTATION
from chalicelib.model.timestamps import instant, parse_time
from chalicelib.operations.step_context import Eviction, NodeState, PodState

T = TypeVar("T")

MIRROR = "kubernetes.io/config.mirror"
DAEMONSET_POD = "cluster-autoscaler.kubernetes.io/daemonset-pod"
ENABLE_DS_EVICTION = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
CLAIMS = "/api/v1/persistentvolumeclaims"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MOST_PAGES = 60
"""Maximum pages of 500 claims. Claims beyond the limit do not delay a removal."""


class _Owner(msgspec.Struct, frozen=True):
    kind: str
    controller: bool | None = False


class _ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: float | None = None


class _Taint(msgspec.Struct, frozen=True):
    key: str
    effect: str = ""
    value: str | None = None


class _NodeSpec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _ReadCondition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class _NodeInfo(msgspec.Struct, frozen=True):
    boot_id: str | None = msgspec.field(default=None, name="bootID")


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[_ReadCondition] | None = None
    node_info: _NodeInfo | None = None


class _ReadNode(msgspec.Struct, frozen=True):
    metadata: _ObjectMeta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    priority: int | None = None
    termination_grace_period_seconds: float | None = None
    scheduling_gates: list[msgspec.Raw] | None = None


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Pods(msgspec.Struct, frozen=True):
    items: list[_Pod] | None = None


class _ClaimStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _Claim(msgspec.Struct, frozen=True):
    metadata: _ObjectMeta
    status: _ClaimStatus = _ClaimStatus()

    def awaits(self, node: str) -> bool:
        """Return whether the claim is assigned to this node and not bound: phase
        Pending, or no phase yet."""
        selected = (self.metadata.annotations or {}).get(SELECTED_NODE) == node
        return (
            selected
            and self.status.phase in ("", "Pending")
            and not self.metadata.deletion_timestamp
        )


class _Claims(msgspec.Struct, frozen=True):
    items: list[_Claim] | None = None


class KubeNodes(LazyKubeClient):
    """NodeApi over one cluster."""

    def node(self, name: str) -> NodeState | None:
        """See NodeApi."""
        try:
            return _node_state(_decode(objects.get_node(self.connected, name), _ReadNode))
        except NotFound:
            return None

    def taint(self, name: str, taint: Taint, *, operation: str, cordon: bool) -> None:
        """See NodeApi."""
        objects.add_taint(self.connected, name, taint, cordon=cordon, operation=operation)

    def untaint(self, name: str, key: str, *, operation: str, uncordon: bool) -> None:
        """See NodeApi."""
        try:
            objects.remove_taint(self.connected, name, key, uncordon=uncordon, operation=operation)
        except NotFound:
            return

    def pod(self, namespace: str, name: str) -> PodState | None:
        """See NodeApi."""
        try:
            return _pod_state(_decode(objects.get_pod(self.connected, namespace, name), _Pod))
        except NotFound:
            return None

    def pods_on(self, node: str) -> tuple[PodState, ...]:
        """See NodeApi; the server filters out finished pods."""
        return _pod_states(objects.pods_on_node(self.connected, node))

    def pods_nominated(self, node: str) -> tuple[PodState, ...]:
        """See NodeApi."""
        query = {"fieldSelector": f"status.nominatedNodeName={node}"}
        return _pod_states(self.connected.get("/api/v1/pods", query=query))

    def claims_awaiting(self, node: str) -> tuple[str, ...]:
        """See NodeApi.

        When a scheduler has chosen a node for a pod with an unbound claim, it writes the node's
        name on the claim and binds the pod only once the volume exists. This takes minutes, during
        which the pod does not show its node (kubernetes#125491). A drain therefore has to read the
        claims.
        """
        names: list[str] = []
        try:
            for number, page in enumerate(self.connected.list_pages(CLAIMS), start=1):
                if page.first:
                    names.clear()
                claims = msgspec.json.decode(page.body, type=_Claims).items or ()
                names += [
                    f"{claim.metadata.namespace}/{claim.metadata.name}"
                    for claim in claims
                    if claim.awaits(node)
                ]
                if names or number >= MOST_PAGES:
                    break
        except (Forbidden, NotFound):
            return ()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"{CLAIMS}: the answer is not what the Kubernetes API gives: {error}"
            ) from None
        return tuple(sorted(names))

    def evict(self, pod: PodState, grace: float) -> Eviction:
        """See NodeApi."""
        result = objects.evict(self.connected, pod.namespace, pod.name, pod.uid, int(grace))
        if isinstance(result, objects.Blocked):
            return Eviction(accepted=False, why_not=result.message, retry_after=result.retry_after)
        return Eviction(accepted=True, gone=isinstance(result, objects.PodGone))


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unavailable(f"the answer is not what the Kubernetes API gives: {error}") from None


def _node_state(node: _ReadNode) -> NodeState:
    meta, spec = node.metadata, node.spec
    annotations, info = meta.annotations or {}, node.status.node_info
    ready = next(
        (one for one in node.status.conditions or () if one.type == "Ready"), _ReadCondition()
    )
    return NodeState(
        name=meta.name,
        uid=meta.uid,
        provider_id=spec.provider_id or "",
        unschedulable=spec.unschedulable,
        scale_down_disabled=annotations.get(SCALE_DOWN_DISABLED) == "true",
        taints=tuple(
            Taint(taint.key, taint.effect, taint.value or "") for taint in spec.taints or ()
        ),
        delays=tuple(sorted(key for key in annotations if key.startswith(DELAY_DELETION_PREFIX))),
        operation=annotations.get(OPERATION_ANNOTATION, ""),
        ready=ready.status == "True",
        ready_since=instant(ready.last_transition_time or ""),
        boot=(info.boot_id if info else None) or "",
        conditions=tuple(_condition(read) for read in node.status.conditions or ()),
    )


def _condition(read: _ReadCondition) -> Condition:
    return Condition(
        read.type, read.status, read.reason or "", instant(read.last_transition_time or "")
    )


def _pod_states(body: bytes) -> tuple[PodState, ...]:
    return tuple(_pod_state(pod) for pod in _decode(body, _Pods).items or ())


def _pod_state(pod: _Pod) -> PodState:
    meta, spec = pod.metadata, pod.spec
    annotations = meta.annotations or {}
    owned = any(
        owner.controller and owner.kind == "DaemonSet" for owner in meta.owner_references or ()
    )
    grace = meta.deletion_grace_period_seconds
    return PodState(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node=spec.node_name or "",
        phase=pod.status.phase or "",
        mirror=MIRROR in annotations,
        daemonset=owned or annotations.get(DAEMONSET_POD) == "true",
        enable_ds_eviction=annotations.get(ENABLE_DS_EVICTION, ""),
        priority=spec.priority or 0,
        grace=30.0
        if spec.termination_grace_period_seconds is None
        else spec.termination_grace_period_seconds,
        deleted=parse_time(meta.deletion_timestamp) if meta.deletion_timestamp else 0.0,
        deletion_grace=30.0 if grace is None else grace,
        gated=bool(spec.scheduling_gates),
    )
