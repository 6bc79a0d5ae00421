"""Applies the drain rules again to one node, on the current state of the cluster
(docs/reference/drain.md "Recheck after the taint").

It uses the planner's own table of rules over a snapshot of one node: its pods, the budgets, and the
pods' controllers, each fetched by name. Objects that may not be read weaken the verdict as they do
in a pass, and do not block by themselves.

One check is added: a pod that several budgets select. The eviction API refuses it
permanently and without naming the budgets, so it is better to know before the first pod of
the node is evicted for nothing.
"""

from __future__ import annotations

from chalicelib.cluster.client import KubeClient, path_segment
from chalicelib.cluster.errors import Forbidden, NotFound, Unavailable
from chalicelib.cluster.objects import pods_on_node
from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.errors import BadInput
from chalicelib.model.pod import Owner
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import Snapshot
from chalicelib.operations.step_context import Recheck
from chalicelib.plan.demand.pending_pods import is_expendable
from chalicelib.plan.removal.drain_rules import MOVABLE, Action, DrainContext, first_verdict
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.policy.settings.cluster_options import Options

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
CONTROLLERS = {
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets/{}",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets/{}",
    "Job": "/apis/batch/v1/namespaces/{}/jobs/{}",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers/{}",
}
_NOTHING = b'{"items":[]}'


class DrainRecheck:
    """Callable: node name -> Recheck. Raises ClusterError where the pods cannot be read.
    is_dead: the kubelet of a node that is repaired does not answer; pods that are being deleted
    there are only waited for."""

    def __init__(
        self, kube: KubeClient, options: Options, now: float, *, is_dead: bool = False
    ) -> None:
        self._cluster, self._options, self._now, self._is_dead = kube, options, now, is_dead

    def __call__(self, node: str) -> Recheck:
        """Return the first pod that blocks the node, by name, or nothing."""
        snapshot = self._read(node)
        if snapshot.gaps:
            gap = snapshot.gaps[0]
            return Recheck(gap.name, f"it could not be read ({gap.detail})")
        pdbs = PodDisruptionBudgets(snapshot.budgets, snapshot.classes)
        context = DrainContext.of(snapshot, self._options, self._now, pdbs)
        for pod in snapshot.pods:
            if is_expendable(snapshot.cls(pod), self._options):
                continue  # deleted with its node, as in the planner
            if self._is_dead and pod.deleted:
                continue
            verdict = first_verdict(pod, snapshot.cls(pod), context) or MOVABLE
            if verdict.action is Action.BLOCK and verdict.reason is not None:
                return Recheck(pod.key, _rule(verdict.reason))
            if verdict.action is Action.WAIT:
                return Recheck(pod.key, "BlockedByOnCompletionPod")
            budgets = context.budgets.of(pod.cls)
            if len(budgets) > 1 and verdict.action is Action.MOVE:
                return Recheck(
                    pod.key,
                    f"budgets {', '.join(budgets)} all select it, and it can never be evicted",
                )
        return Recheck()

    def _read(self, node: str) -> Snapshot:
        builder = SnapshotBuilder()
        try:
            builder.add_page(pods_on_node(self._cluster, node), "/api/v1/pods", "Pod")
            self._read_budgets(builder)
            for namespace, owner in _owners(builder.snapshot("", self._now)):
                self._read_controller(builder, namespace, owner)
        except BadInput as error:  # the response does not come from the API server
            raise Unavailable(str(error)) from error
        return builder.snapshot("", self._now)

    def _read_budgets(self, builder: SnapshotBuilder) -> None:
        try:
            for page in self._cluster.list_pages(BUDGETS):
                if page.first:
                    builder.reset("PodDisruptionBudget")
                builder.add_page(page.body, BUDGETS, "PodDisruptionBudget")
        except (Forbidden, NotFound):
            builder.reset("PodDisruptionBudget")

    def _read_controller(self, builder: SnapshotBuilder, namespace: str, owner: Owner) -> None:
        """Fetch one controller. A missing one is known not to exist; one that
        may not be read is unknown."""
        path = CONTROLLERS[owner.kind].format(path_segment(namespace), path_segment(owner.name))
        try:
            body = self._cluster.get(path)
        except Forbidden:
            return
        except NotFound:
            body = _NOTHING
        builder.add_page(body, path, owner.kind)


def _rule(reason: Reason) -> str:
    """Return the rule's code, and the budget where one is the cause."""
    budget = reason.params.get("budget")
    return f"{reason.code.value} (budget {budget})" if budget else reason.code.value


def _owners(snapshot: Snapshot) -> list[tuple[str, Owner]]:
    """Return the controllers of the pods, each once, of the kinds that the rules use."""
    owners = {
        (pod.namespace, owner.kind, owner.name): owner
        for pod in snapshot.pods
        if (owner := snapshot.cls(pod).owner) and owner.built_in
    }
    return [(key[0], owners[key]) for key in sorted(owners)]
