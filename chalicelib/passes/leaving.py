"""What is done for a cluster whose mode does not act any more: soft taints and marks that passes
have written are taken back, and memory says that no pass looks at the groups.

In mode `shadow` a pass does the first at its end. In mode `off` nothing is planned; one pass does
both, and nothing else, and the next message finds nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.model.errors import OutscalerError
from chalicelib.passes import soft_taints
from chalicelib.passes.lease_renewal import HeldLease, renewed
from chalicelib.plan.state.foreign_growths import left
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.mode_guard import Permission
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.leases import Lease

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient
    from chalicelib.model.memory import Memory


def is_left(cluster: str, permission: Permission, runtime: Runtime) -> bool:
    """Return whether memory says that no pass looks at the groups, and no node has soft taints or
    marks of Outscaler. Raises StoreError."""
    memory = runtime.store.memory.look(cluster)
    noted = permission.take_back and soft_taints.noted_nodes(memory)
    return memory == left(memory) and not noted


def leave(policy: Policy, permission: Permission, lease: Lease, runtime: Runtime) -> bool:
    """Note that no pass looks at the groups from now on, and take back soft taints and marks.
    Return whether some are left for another pass. The lease is released in any case. Raises
    ClusterError, StoreError."""
    held = HeldLease(lease, runtime.store.leases, runtime.clock)
    try:
        with renewed(held, runtime):
            memory = runtime.store.memory.load(lease.cluster)
            runtime.store.memory.save(lease.cluster, memory, left(memory), (), held.check())
            if permission.take_back and soft_taints.noted_nodes(memory):
                return _take_back(runtime.kube_client(policy), held, runtime)
            return False
    finally:
        runtime.store.leases.release(lease)


def take_back(memory: Memory, kube: KubeClient, held: HeldLease, runtime: Runtime) -> None:
    """Take back soft taints and marks, if there are any. memory: as it was before the pass. A
    failure is logged, and the next pass tries again."""
    if not soft_taints.noted_nodes(memory):
        return
    try:
        _take_back(kube, held, runtime)
    except OutscalerError as error:
        logger.error("soft taints not taken back", cluster=held.cluster, **failure(error))


def _take_back(kube: KubeClient, held: HeldLease, runtime: Runtime) -> bool:
    """Remove the soft taints and marks that memory has noted as ours, and the notes of those that
    are gone; return whether time has left some. Raises ClusterError, StoreError; what is left is
    taken back by the next attempt."""
    memory = runtime.store.memory.load(held.cluster)
    done = list[str]()
    try:
        for node in soft_taints.take_back(memory, kube, runtime.clock, runtime.sleep, held.cluster):
            done.append(node)
    finally:
        if done:
            rest = soft_taints.without_notes(memory, done)
            runtime.store.memory.save(held.cluster, memory, rest, (), held.check())
    return len(done) < len(soft_taints.noted_nodes(memory))
