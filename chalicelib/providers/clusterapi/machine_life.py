"""What becomes of Machines: how old they are, which of them are outdated, who repairs them, and
which the infrastructure may take back.

A Machine is outdated if the resource that owns it would create another one now. That is
only stated where nobody but a user, or Outscaler, replaces it
(docs/providers/clusterapi.md "Outdated Machines"):

    MachineDeployment, OnDelete         its MachineSet is of an earlier revision than the newest
    MachineDeployment, RollingUpdate    never: the rollout replaces it, and
                                        meanwhile the group is busy
    MachineDeployment, spec.paused      never: a new Machine might be of an earlier revision, too
    MachineSet, MachinePool             its version is not that of the template

A MachineHealthCheck repairs the Machines of MachineSets that its selector matches, by deleting
them; with a template for an external remediation, all Machines that it matches. If the checks
cannot be listed, any of them might repair any Machine, which is stated for each Machine: a second
repair beside Cluster API's would remove two nodes for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chalicelib.model.node import Node
from chalicelib.model.timestamps import instant
from chalicelib.providers.clusterapi.api import DEPLOYMENT, HEALTH_CHECK, SET
from chalicelib.providers.clusterapi.capi_state import (
    ON_DELETE,
    CapiState,
    controller,
    latest_revision,
    revision_of,
)
from chalicelib.providers.clusterapi.models import (
    INTERRUPTIBLE,
    PAUSED,
    SKIP_REMEDIATION,
    CapiAnnotations,
    CapiHealthCheck,
    CapiMachine,
    CapiResource,
)

_ROLLING = "RollingOut"
_OUTDATED_TAINT = "node.cluster.x-k8s.io/outdated-revision"
_SHOWN, _VERSION = 120, 40  # maximum characters of untrusted text, and of a version
_MOST_CHECKS = 1000
_TIME = 40  # characters; the API server writes 20

# -- age


def born(machine: CapiMachine, now: float) -> float:
    """Return when the Machine was created, epoch seconds; 0.0 if that is
    unreadable or in the future."""
    text = machine.metadata.creation_timestamp or ""
    created = instant(text) if len(text) <= _TIME else 0.0
    return created if created <= now else 0.0


# -- outdated Machines


class Revisions:
    """The newest template of a resource, with which its Machines are compared.
    sets: those that it controls."""

    def __init__(self, kind: str, resource: CapiResource, sets: Sequence[CapiResource]) -> None:
        self._kind, self._resource = kind, resource
        self._sets = {machine_set.metadata.uid: machine_set for machine_set in sets}
        self._latest = latest_revision(sets)
        if kind == DEPLOYMENT:
            self._silent = resource.strategy != ON_DELETE or bool(resource.spec.paused)
        else:
            self._silent = resource.is_true(_ROLLING)

    def difference(self, machine: CapiMachine, node: Node | None) -> str:
        """Return in what the Machine differs from a new one, empty if in nothing that is known."""
        if self._silent or machine.leaving:
            return ""
        if self._kind != DEPLOYMENT:
            return self._version_difference(machine)
        machine_set = self._sets.get(controller(machine.metadata, SET))
        revision = revision_of(machine_set) if machine_set is not None else -1
        if machine_set is not None and 0 <= revision < self._latest:
            name = machine_set.metadata.name[:_SHOWN]
            text = f"MachineSet {name} of revision {revision}, new Machines are of {self._latest}"
            return "; ".join(
                filter(None, (text, self._version_difference(machine), _explained(machine)))
            )
        tainted = node is not None and any(taint.key == _OUTDATED_TAINT for taint in node.taints)
        unknown = min(revision, self._latest) < 0
        return "Cluster API has tainted its Node as outdated" if tainted and unknown else ""

    def _version_difference(self, machine: CapiMachine) -> str:
        template = self._resource.spec.template
        new = (
            (template.spec.version or "")
            if template is not None and template.spec is not None
            else ""
        )
        own = machine.spec.version or ""
        if not own or not new or own.removeprefix("v") == new.removeprefix("v"):
            return ""
        return f"version {own[:_VERSION]}, new Machines have {new[:_VERSION]}"


def _explained(machine: CapiMachine) -> str:
    """Return what Cluster API says of an outdated Machine itself, empty if nothing."""
    condition = machine.condition("UpToDate")
    message = condition.message if condition is not None and condition.status == "False" else ""
    return " ".join((message or "").split())[:_SHOWN]


def rollout(kind: str, resource: CapiResource, sets: Sequence[CapiResource]) -> str:
    """Return the rollout that replaces a resource's Machines now, empty if there is none.
    sets: those that it controls. A rollout that waits for a user, by its strategy or a
    pause, replaces nothing."""
    rolling = resource.is_true(_ROLLING)
    if kind == DEPLOYMENT:
        waits = resource.strategy == ON_DELETE or bool(resource.spec.paused)
        latest = latest_revision(sets)
        older = (
            item for item in sets if 0 <= revision_of(item) < latest and item.desired_or_present > 0
        )
        rolling = not waits and (rolling or any(older))
    return (
        f"rollout of {kind} {resource.metadata.namespace}/{resource.metadata.name}"
        if rolling
        else ""
    )


def work_on(machine: CapiMachine) -> str:
    """Return what Cluster API changes on a Machine now, empty if nothing."""
    condition = machine.condition("Updating")
    return (
        "Cluster API: in-place update"
        if condition is not None and condition.status == "True"
        else ""
    )


# -- spot


def is_interruptible(
    resource: CapiResource,
    machines: Iterable[CapiMachine],
    node_labels: Iterable[Mapping[str, str]],
) -> bool:
    """Whether the infrastructure may take back Machines of the resource: by the label of its
    template, of a Machine, or of a Node, to which Cluster API copies it from the infrastructure.
    node_labels: of its Nodes, and those that a new one gets."""
    template = resource.spec.template
    promised = (
        template.metadata.labels if template is not None and template.metadata is not None else None
    ) or {}
    labels = (promised, *(machine.metadata.labels or {} for machine in machines), *node_labels)
    return any(each.get(INTERRUPTIBLE, "false").lower() != "false" for each in labels)


# -- MachineHealthChecks


class Repairers:
    """Who repairs the Machines of a management cluster."""

    def __init__(self, state: CapiState, annotations: CapiAnnotations) -> None:
        self._state, self._keys = state, annotations
        self._checks: dict[tuple[str, str], list[CapiHealthCheck]] = {}
        for check in state.health_checks[:_MOST_CHECKS]:
            if PAUSED not in (check.metadata.annotations or {}):
                self._checks.setdefault(
                    (check.metadata.namespace, check.spec.cluster_name), []
                ).append(check)
        # Machines of one template have the same labels, so each check is compared
        # once with each template.
        self._matching: dict[
            tuple[str, str, frozenset[tuple[str, str]]], tuple[CapiHealthCheck, ...]
        ] = {}

    def of(self, machine: CapiMachine) -> str:
        """Return who repairs the Machine if it is sick, empty if nobody does."""
        metadata = machine.metadata
        if {SKIP_REMEDIATION, PAUSED} & (metadata.annotations or {}).keys():
            return ""
        if self._state.missing(HEALTH_CHECK, metadata.namespace):
            return "perhaps a MachineHealthCheck: they could not be listed"
        if len(self._state.health_checks) > _MOST_CHECKS:
            return f"perhaps a MachineHealthCheck: there are more than {_MOST_CHECKS}"
        of_set = bool(controller(metadata, SET))
        matching = self._match(
            metadata.namespace, machine.cluster(self._keys), metadata.labels or {}
        )
        check = next((check for check in matching if of_set or check.is_external), None)
        return (
            f"{HEALTH_CHECK} {check.metadata.namespace}/{check.metadata.name}"
            if check is not None
            else ""
        )

    def _match(
        self, namespace: str, cluster: str, labels: Mapping[str, str]
    ) -> tuple[CapiHealthCheck, ...]:
        if not (checks := self._checks.get((namespace, cluster), ())):
            return ()
        key = (namespace, cluster, frozenset(labels.items()))
        if key not in self._matching:
            self._matching[key] = tuple(
                check for check in checks if check.spec.selector.matches(labels)
            )
        return self._matching[key]
