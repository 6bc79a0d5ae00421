"""Defaults of Cluster Autoscaler that differ from Outscaler's, by the release of the image.

An import writes them out where they decide which nodes are bought or removed, so that a move does not change that. The
figures are those of the source of each release.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec


class ReleaseDefault(msgspec.Struct, frozen=True):
    """A default of the releases from `since` to `until`, both inclusive."""

    flag: str
    until: tuple[int, int]
    option: str
    value: str | int | bool
    text: str
    since: tuple[int, int] = (0, 0)


_ANY = (2**31, 0)  # a bound that no release reaches
# In the order of the document.
RELEASE_DEFAULTS = (
    ReleaseDefault(
        "expander", (1, 32), "expander", "random", "was the default until 1.32; least-waste leaves less unused capacity"
    ),
    ReleaseDefault(
        "expendable-pods-priority-cutoff", (1, 3), "expendablePodsPriorityCutoff", 0, "was the default until 1.3"
    ),
    ReleaseDefault(
        "scale-down-delay-after-delete",
        (1, 14),
        "scaleDownDelayAfterDelete",
        "10s",
        "the scan interval was the default until 1.14",
    ),
    ReleaseDefault(
        "max-total-unready-percentage", (1, 1), "maxTotalUnreadyPercentage", 33, "was the default until 1.1"
    ),
    ReleaseDefault(
        "max-graceful-termination-sec", (0, 6), "maxGracefulTerminationSec", 60, "was the default until 0.6"
    ),
    ReleaseDefault(
        "cordon-node-before-terminating",
        (1, 33),
        "cordonNodeBeforeTerminating",
        value=False,
        text="was the default until 1.33",
    ),
    ReleaseDefault(
        "blocking-system-pod-distruption-timeout",
        _ANY,
        "blockingSystemPodDistruptionTimeout",
        "1h",
        "since 1.33 a kube-system pod without a disruption budget keeps its node for an hour only",
        since=(1, 33),
    ),
)
BLOCKING = "blocking-system-pod-distruption-timeout"


def release_defaults(
    version: tuple[int, int] | None, given: Set[str], *, system_pods_skipped: bool = True
) -> tuple[ReleaseDefault, ...]:
    """Return the defaults to write out. version: None if it is unknown. given: flags of the command line.

    system_pods_skipped: the value of skip-nodes-with-system-pods; without it nothing blocks a node.
    """
    if version is None:
        return ()
    return tuple(
        row
        for row in RELEASE_DEFAULTS
        if row.since <= version <= row.until and row.flag not in given and (row.flag != BLOCKING or system_pods_skipped)
    )


def order_of(option: str) -> int:
    """Return the position of an option in the document: the defaults of the table first, others as given."""
    return next((at for at, row in enumerate(RELEASE_DEFAULTS) if row.option == option), len(RELEASE_DEFAULTS))
