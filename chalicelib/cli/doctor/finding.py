"""What a check may use (DoctorContext), what it asks (QUESTIONS), and what it returns (Finding).

A check reads; it changes nothing. Each input may be missing, and a check that needs it is then
UNASKED with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from chalicelib import DOCS
from chalicelib.cluster.errors import Unavailable

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient
    from chalicelib.model.plan import Plan
    from chalicelib.model.snapshot import Snapshot
    from chalicelib.policy.settings.cluster_policy import Policy
    from chalicelib.providers.kit.base import Provider


class Severity(StrEnum):
    """How bad a finding is. UNASKED: the check could not be made, so nothing is
    known; never taken for good."""

    ERROR = "error"
    WARNING = "warn"
    INFO = "info"
    UNASKED = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """One result.

    id: `DR04`. subject: a short word such as `rbac`, `pdb`, `quota`, for --only. message: one line.
    fix: what to do, one line or a few lines of YAML. evidence: figures and names, JSON values only.
    """

    id: str
    severity: Severity
    subject: str
    message: str
    fix: str
    evidence: Mapping[str, object] = msgspec.field(default_factory=dict)

    @property
    def url(self) -> str:
        """The heading of docs/runbook.md about this check."""
        return f"{DOCS}/runbook.md#{self.id.lower()}"


class Question(msgspec.Struct, frozen=True):
    """What the findings of an id have in common. subject: see Finding. severity, fix: where the
    check does not say otherwise."""

    subject: str
    severity: Severity
    fix: str


_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_CONNECTION = "correct the connection, and repeat the command"
_RENEW = (
    "outscaler manifests token | kubectl apply -f -, then outscaler kubeconfig and store it again"
)
QUESTIONS: Mapping[str, Question] = {
    "DR01": Question(
        "kubeconfig",
        _ERROR,
        "publish the API server for the functions, or run them in its VPC and say so with --vpc",
    ),
    "DR02": Question(
        "kubeconfig", _ERROR, "outscaler kubeconfig makes one with the token of a service account"
    ),
    "DR03": Question("kubeconfig", _ERROR, _RENEW),
    "DR04": Question("rbac", _ERROR, _CONNECTION),
    "DR05": Question(
        "rbac",
        _INFO,
        "use the service account of outscaler manifests rbac, with outscaler kubeconfig",
    ),
    "DR06": Question(
        "clock", _WARNING, "synchronise both with NTP; signatures are refused at 5 to 15 minutes"
    ),
    "DR07": Question("autoscaler", _WARNING, "--as-person KUBECONFIG reads them with wider rights"),
    "DR08": Question(
        "autoscaler", _WARNING, "set options.statusConfigMapName, or stop the other program"
    ),
    "DR09": Question("autoscaler", _WARNING, "nothing to do, or remove Karpenter"),
    "DR10": Question("vendor", _ERROR, "take them out of one of the policies"),
    "DR11": Question(
        "vendor", _ERROR, f"{DOCS}/providers has the settings and rights of the provider"
    ),
    "DR12": Question(
        "bounds", _WARNING, "change the bounds at the vendor or in the policy, so that both agree"
    ),
    "DR13": Question("quota", _WARNING, "ask the vendor for more, or lower the maximums"),
    "DR15": Question(
        "template",
        _WARNING,
        (
            "set reservedCpu, reservedMemory or reservedEphemeralStorage of the provider, or "
            "capacity annotations"
        ),
    ),
    "DR16": Question(
        "template",
        _ERROR,
        (
            f"describe its nodes by the provider's annotations or tags ({DOCS}/providers), or keep "
            "one node"
        ),
    ),
    "DR17": Question(
        "template",
        _WARNING,
        "extend the node affinity of these DaemonSets, if their images have the architecture",
    ),
    "DR18": Question(
        "pdb", _WARNING, "add a replica, or allow one pod to be away (maxUnavailable: 1)"
    ),
    "DR19": Question("pdb", _WARNING, "leave one budget for each pod"),
    "DR20": Question(
        "pdb", _WARNING, "set unhealthyPodEvictionPolicy: AlwaysAllow, or correct the pods"
    ),
    "DR21": Question(
        "drain",
        _WARNING,
        "outscaler explain node NAME --kubeconfig FILE --policy FILE says what helps",
    ),
    "DR22": Question("drain", _WARNING, "give each workload a budget:"),
    "DR23": Question(
        "pods",
        _WARNING,
        (
            f"{DOCS}/limits.md names what is simulated; bypassedSchedulerNames treats a scheduler "
            "as the default one"
        ),
    ),
    "DR24": Question(
        "nodes",
        _WARNING,
        "run the vendor's cloud controller, or start the kubelet with --provider-id",
    ),
    "DR25": Question("nodes", _WARNING, "options.startupTaint: [NAMES]"),
    "DR26": Question(
        "versions", _WARNING, f"{DOCS}/versions.md has the supported versions of Kubernetes"
    ),
    "DR27": Question(
        "secrets", _ERROR, "give it with --secret NAME=FILE, or --table to read the deployment's"
    ),
    "DR28": Question("webhook", _ERROR, "correct the address"),
    "DR29": Question("volume", _WARNING, "raise scanInterval and use the webhook"),
    "DR31": Question(
        "expander",
        _WARNING,
        "taint the groups, or set expander: priority or spec.prices with expander: price",
    ),
    "DR32": Question(
        "removals",
        _INFO,
        "set maxDisruption or maintenanceWindows, if these are too many or at the wrong time",
    ),
    "DR33": Question(
        "spot", _WARNING, "write spot: {}, or spot: {interruptions: report} to keep it so"
    ),
    "DR34": Question("zones", _WARNING, "make a node group for each zone"),
    "DR35": Question(
        "machines",
        _WARNING,
        f"wait until each group has as many nodes as its size ({DOCS}/shadow.md)",
    ),
    "DR36": Question(
        "descheduler",
        _WARNING,
        "take the plugin out of the descheduler's policy, or set consolidation.steering: false",
    ),
}
"""By id. For what each check looks is in its own text, and in docs/runbook.md."""


def finding(
    finding_id: str,
    message: str,
    *,
    severity: Severity | None = None,
    fix: str = "",
    **evidence: object,
) -> Finding:
    """Return a finding. severity, fix: those of the question where they are not given."""
    question = QUESTIONS[finding_id]
    return Finding(
        finding_id,
        severity or question.severity,
        question.subject,
        message,
        fix or question.fix,
        evidence,
    )


class DoctorContext(msgspec.Struct, frozen=True):
    """Inputs of all checks.

    workload, management: the API as the functions use it; None with the reason in `unreachable`
    (place -> one line). management is None, too, where the policy has no management cluster, or
    where it is the workload cluster. person: the reader's own, wider kubeconfig (--as-person), for
    looking around; None: workload is used. snapshot: of the workload cluster, read once. providers:
    by name, opened with the secrets given; read only. read_secret: raises BadInput where it is not
    given. kubeconfig_text: of the workload kubeconfig as the functions will read it. probe:
    --probe-writes. policies: other policies of the deployment's table, where --table was given.
    clock: epoch seconds. plan: what would be done with every unneeded node's timer over, None where
    the cluster could not be read. vpc: the functions run in a network that reaches private
    addresses. webhook_url: the API's address, without the path of a cluster. api: the address that
    outscaler login has kept, "" for none. replaced: names of secrets whose kubeconfigs are given as
    files.
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
    replaced: frozenset[str] = frozenset()
    api: str = ""

    @property
    def observer(self) -> KubeClient:
        """The client for looking around. Raises Unavailable where no cluster can be reached."""
        return self.cluster if self.person is None else self.person

    @property
    def cluster(self) -> KubeClient:
        """The workload cluster as the functions reach it. Raises Unavailable
        where it cannot be reached."""
        if self.workload is None:
            raise Unavailable(dict(self.unreachable).get("workload", "no kubeconfig is given"))
        return self.workload

    @property
    def required_snapshot(self) -> Snapshot:
        """The snapshot. Raises Unavailable where the cluster could not be read."""
        if self.snapshot is None:
            raise Unavailable(
                dict(self.unreachable).get("workload", "the cluster could not be read")
            )
        return self.snapshot
