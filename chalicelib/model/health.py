"""The words for how a cluster, a node group and a waiting pod are: one ordered table.

The page, `outscaler get`, the read routes, notifications and docs/page.md "Words of health" take
their words from here. Of the rows about one subject, the first that applies is shown, and those of
a cluster get milder downwards: a cluster is never better than the worst of its groups.
"""

from __future__ import annotations

from enum import Enum, StrEnum

import msgspec


class Tone(StrEnum):
    """How urgent a status is. Every status has a word, too, so that none depends on a colour."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    BAD = "bad"


CLUSTER, GROUP, POD = "cluster", "group", "pod"


class HealthRow(msgspec.Struct, frozen=True):
    """One word. subject: what it is said of. word: {} stands for a count with its noun. person:
    somebody must do something; otherwise it is well, ends by itself, or a person has wanted it.
    meaning: for docs/page.md. anchor: of docs/runbook.md. stable: the value of the stable key in
    JSON that corresponds to it: `health` of a cluster, `decision` of a pod. notices: the types of
    notifications about it."""

    subject: str
    word: str
    tone: Tone
    person: bool
    meaning: str
    anchor: str = ""
    stable: str = ""
    notices: tuple[str, ...] = ()


class HealthState(Enum):
    """Every row, in order."""

    # --- of a cluster
    NOT_READ = HealthRow(
        CLUSTER,
        "not read",
        Tone.BAD,
        person=True,
        meaning=(
            "this release cannot read the policy or a stored row of the cluster, or the functions "
            "do not permit a secret or host that the policy names; no pass starts"
        ),
        anchor="policies-not-in-effect",
        stable="unreadable",
    )
    OFF = HealthRow(
        CLUSTER,
        "off",
        Tone.INFO,
        person=False,
        meaning="the policy's mode is `off`; no pass is made",
        stable="off",
    )
    NO_PASSES = HealthRow(
        CLUSTER,
        "no passes",
        Tone.BAD,
        person=True,
        meaning=(
            "no pass has ended for `scanInterval` and 3 minutes. Where there never was one, this "
            "time begins when the policy is applied"
        ),
        anchor="missing-passes",
        stable="late",
        notices=("cluster.late",),
    )
    PASSES_FAIL = HealthRow(
        CLUSTER,
        "passes fail",
        Tone.BAD,
        person=True,
        meaning="the last pass failed, and nothing is decided",
        anchor="missing-passes",
        stable="failing: …",
        notices=("cluster.unreachable", "cluster.unauthorized"),
    )
    BREAKER_TRIPPED = HealthRow(
        CLUSTER,
        "circuit breaker tripped",
        Tone.BAD,
        person=True,
        meaning="removals are blocked until a person releases them",
        anchor="tripped-circuit-breaker",
        stable="ok",
        notices=("brake.pulled",),
    )
    CLUSTER_UNHEALTHY = HealthRow(
        CLUSTER,
        "unhealthy",
        Tone.BAD,
        person=True,
        meaning="too many nodes are not ready, so nothing is changed",
        anchor="notification-clusterunhealthy",
        stable="ok",
        notices=("cluster.unhealthy",),
    )
    VENDORS_NOT_READ = HealthRow(
        CLUSTER,
        "{} not read",
        Tone.BAD,
        person=True,
        meaning="a vendor cannot be read, so its groups are neither grown nor shrunk",
        anchor="notification-providerunreadable",
        stable="ok",
        notices=("provider.unreadable", "provider.unauthorized", "provider.throttled"),
    )
    GROUPS_NOT_READ = HealthRow(
        CLUSTER,
        "{} not read",
        Tone.BAD,
        person=True,
        meaning="the vendor does not show a group that the policy names",
        anchor="groupunreadable",
        stable="ok",
    )
    GROUPS_UNHEALTHY = HealthRow(
        CLUSTER,
        "{} unhealthy",
        Tone.BAD,
        person=True,
        meaning="nodes of a group are not ready or missing",
        anchor="unhealthy-groups",
        stable="ok",
        notices=("group.unhealthy",),
    )
    GROUPS_CANNOT_GROW = HealthRow(
        CLUSTER,
        "{} cannot grow",
        Tone.BAD,
        person=True,
        meaning="growth of a group is refused, or fails again and again",
        anchor="notification-groupfailed",
        stable="ok",
        notices=("group.failed",),
    )
    PAUSED = HealthRow(
        CLUSTER,
        "paused",
        Tone.WARN,
        person=False,
        meaning="an operator has paused everything, with an end, an author and a reason",
        anchor="pauses",
        stable="ok",
        notices=("paused",),
    )
    GROWTH_PAUSED = HealthRow(
        CLUSTER,
        "growth paused",
        Tone.WARN,
        person=False,
        meaning="an operator has paused growth in the whole cluster",
        anchor="pauses",
        stable="ok",
        notices=("paused",),
    )
    PODS_WITHOUT_NODE = HealthRow(
        CLUSTER,
        "{} without a node",
        Tone.WARN,
        person=True,
        meaning="pods wait, and no node is coming for them",
        stable="ok",
        notices=("pods.unhelped",),
    )
    REMOVALS_PAUSED = HealthRow(
        CLUSTER,
        "removals paused",
        Tone.WARN,
        person=False,
        meaning="an operator has paused removals in the whole cluster",
        anchor="pauses",
        stable="ok",
        notices=("paused",),
    )
    GROUPS_BACKING_OFF = HealthRow(
        CLUSTER,
        "{} backing off",
        Tone.WARN,
        person=False,
        meaning="a group is tried again later, by itself",
        anchor="notification-groupfailed",
        stable="ok",
        notices=("group.failed",),
    )
    NODES_BEHIND_BUDGETS = HealthRow(
        CLUSTER,
        "{} blocked by a budget",
        Tone.INFO,
        person=True,
        meaning=(
            "nodes that are not needed stay because a PodDisruptionBudget needs all of its pods "
            "and never allows a disruption"
        ),
        anchor="drains-blocked-by-a-disruption-budget",
        stable="ok",
    )
    NO_PASS_YET = HealthRow(
        CLUSTER,
        "no pass yet",
        Tone.INFO,
        person=False,
        meaning="the policy has just been applied; the first pass follows within two minutes",
        stable="waiting",
    )
    PODS_COMING = HealthRow(
        CLUSTER,
        "node coming for {}",
        Tone.INFO,
        person=False,
        meaning="pods wait, and each of them has a node: a new one, or room on one",
        stable="ok",
    )
    WELL = HealthRow(CLUSTER, "ok", Tone.OK, person=False, meaning="none of these", stable="ok")

    # --- of a node group
    GROUP_NOT_READ = HealthRow(
        GROUP,
        "not read",
        Tone.BAD,
        person=True,
        meaning="its vendor could not be read, or does not show it",
        anchor="groupunreadable",
        notices=("provider.unreadable", "provider.unauthorized", "provider.throttled"),
    )
    GROUP_UNHEALTHY = HealthRow(
        GROUP,
        "unhealthy",
        Tone.BAD,
        person=True,
        meaning="its nodes are not ready or missing, so it is neither grown nor shrunk",
        anchor="unhealthy-groups",
        notices=("group.unhealthy",),
    )
    GROUP_CANNOT_GROW = HealthRow(
        GROUP,
        "cannot grow",
        Tone.BAD,
        person=True,
        meaning=(
            "the vendor refuses its growth (credentials, quota, an invalid request), or three "
            "growths in a row have failed although there are machines. It is tried again, but "
            "somebody must see to the cause"
        ),
        anchor="notification-groupfailed",
        notices=("group.failed",),
    )
    GROUP_PAUSED = HealthRow(
        GROUP,
        "paused",
        Tone.INFO,
        person=False,
        meaning="an operator has paused this group, or its growth or removals",
        anchor="pauses",
        notices=("paused",),
    )
    GROUP_BACKING_OFF = HealthRow(
        GROUP,
        "backing off",
        Tone.WARN,
        person=False,
        meaning=(
            "its growth failed for a reason that passes, such as sold out; it is tried again at "
            "the time named"
        ),
        anchor="notification-groupfailed",
        notices=("group.failed",),
    )
    GROUP_GROWING = HealthRow(
        GROUP, "growing", Tone.INFO, person=False, meaning="nodes are on their way"
    )
    GROUP_LEAVING = HealthRow(
        GROUP, "leaving", Tone.INFO, person=False, meaning="nodes are being removed"
    )
    GROUP_AT_MAXIMUM = HealthRow(
        GROUP,
        "at its maximum",
        Tone.WARN,
        person=True,
        meaning="pods wait that it would take if it might be larger",
        anchor="notification-groupat-max",
        notices=("group.at-max",),
    )
    GROUP_STEADY = HealthRow(GROUP, "steady", Tone.OK, person=False, meaning="none of these")
    GROUP_UNDECIDED = HealthRow(
        GROUP,
        "not in the last decision",
        Tone.OK,
        person=False,
        meaning="it is remembered, and the last pass did not see it",
    )

    # --- of a waiting pod
    POD_WITHOUT_PLACE = HealthRow(
        POD,
        "no place",
        Tone.WARN,
        person=True,
        meaning="nothing that the last pass decided helps it",
        stable="unschedulable",
        notices=("pods.unhelped",),
    )
    POD_GETS_NODE = HealthRow(
        POD,
        "new node",
        Tone.INFO,
        person=False,
        meaning="a group grows for it",
        stable="newNode",
    )
    POD_FITS = HealthRow(
        POD,
        "has a place",
        Tone.INFO,
        person=False,
        meaning="there is room on a node that exists or is on its way",
        stable="fitsExisting",
    )
    POD_NOT_LOOKED_AT = HealthRow(
        POD,
        "not looked at",
        Tone.INFO,
        person=False,
        meaning="it is too new, or of a kind that the policy leaves out",
        stable="notLookedAt",
    )

    @property
    def row(self) -> HealthRow:
        """Return what is said about it."""
        return self.value

    @property
    def word(self) -> str:
        """Return the word."""
        return self.value.word

    @property
    def rank(self) -> int:
        """Return its place in the table."""
        return _RANKS[self]


_RANKS = {state: rank for rank, state in enumerate(HealthState)}

OF_PODS = {state.row.stable: state for state in HealthState if state.row.subject == POD}
"""The words by the stable value of a pod's decision."""

FAILURES_IN_A_ROW = 3
"""Growths that must fail one after another before a back-off needs a person."""
_REFUSED = frozenset({"InvalidRequest", "NotFound", "QuotaExceeded", "Unauthorized"})
_PASSING = frozenset({"Conflict", "OutOfStock", "Throttled", "Transient"})


def of_backoff(error_class: str, attempt: int) -> HealthState:
    """Return the state of a group that is backed off. error_class: of the last failure; attempt:
    how many there were in a row."""
    is_stubborn = attempt >= FAILURES_IN_A_ROW and error_class not in _PASSING
    if error_class in _REFUSED or is_stubborn:
        return HealthState.GROUP_CANNOT_GROW
    return HealthState.GROUP_BACKING_OFF
