"""What checks may use: the policy, clients of the clusters, the snapshot, secrets by name, and clocks.

A check reads; it changes nothing. Each input may be missing, and a check that needs it is then UNASKED with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import Unavailable
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.providers.base import Provider


class DoctorContext(msgspec.Struct, frozen=True):
    """Inputs of all checks.

    workload, management: the API as the functions use it; None with the reason in `unreachable` (place -> one line).
    management is None, too, where the policy has no management cluster, or where it is the workload cluster.
    person: the reader's own, wider kubeconfig (--as-person), for looking around; None: workload is used. snapshot: of
    the workload cluster, read once. providers: by name, opened with the secrets given; read only. read_secret: raises
    BadInput where it is not given. kubeconfig_text: of the workload kubeconfig as the functions will read it. probe:
    --probe-writes. policies: other policies of the deployment's table, where --table was given. clock: epoch seconds.
    plan: what would be done with every unneeded node's timer over, None where the cluster could not be read.
    vpc: the functions run in a network that reaches private addresses. webhook_url: the API's
    address, without the path of a cluster.
    """

    policy: Policy
    clock: Callable[[], float]
    read_secret: Callable[[str], str]
    workload: KubeClient | None = None
    management: KubeClient | None = None
    person: KubeClient | None = None
    snapshot: Snapshot | None = None
    providers: tuple[tuple[str, Provider], ...] = ()
    unreachable: tuple[tuple[str, str], ...] = ()
    kubeconfig_text: str = ""
    probe: bool = False
    policies: tuple[Policy, ...] = ()
    plan: Plan | None = None
    vpc: bool = False
    webhook_url: str = ""

    @property
    def observer(self) -> KubeClient:
        """The client for looking around. Raises Unavailable where no cluster can be reached."""
        return self.cluster if self.person is None else self.person

    @property
    def cluster(self) -> KubeClient:
        """The workload cluster as the functions reach it. Raises Unavailable where it cannot be reached."""
        if self.workload is None:
            raise Unavailable(dict(self.unreachable).get("workload", "no kubeconfig is given"))
        return self.workload

    @property
    def required_snapshot(self) -> Snapshot:
        """The snapshot. Raises Unavailable where the cluster could not be read."""
        if self.snapshot is None:
            raise Unavailable(dict(self.unreachable).get("workload", "the cluster could not be read"))
        return self.snapshot
