"""What becomes of every flag that any release of Cluster Autoscaler has had, and
defaults that differ by release.

Most rows are derived from policy/options.py, so that a flag cannot have one meaning in a document
and another in an import. The tables here name the flags whose translation differs from that.
"""

from __future__ import annotations

import re
from collections.abc import Set
from enum import StrEnum

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import closest, quote
from chalicelib.policy.option_tables import OptionDefinition, Status
from chalicelib.policy.options import FLAGS


class Fate(StrEnum):
    """How a flag is translated."""

    OPTION = "option"  # the same value in spec.options
    LATER = "later"  # the same, but this version does not use it
    RENAMED = "renamed"  # the value of another flag
    ALWAYS = "always"  # a switch that is always on
    NOTHING = "nothing"  # it has no effect
    PLACE = "place"  # it has its own place in the document


class KnownFlag(msgspec.Struct, frozen=True):
    """One flag. option: how its value is read. becomes: the flag that it is renamed to.
    reason: text of its row."""

    flag: str
    fate: Fate
    option: OptionDefinition | None = None
    becomes: str = ""
    reason: str = ""


_FATES = {
    Status.IN_FORCE: Fate.OPTION,
    Status.ALIAS: Fate.RENAMED,
    Status.ACCEPTED: Fate.LATER,
    Status.ALWAYS: Fate.ALWAYS,
    Status.IGNORED: Fate.NOTHING,
    Status.MEANINGLESS: Fate.NOTHING,
    Status.ELSEWHERE: Fate.PLACE,
}
_REASONS = {
    Status.IGNORED: "Cluster Autoscaler does not read it either",
    Status.MEANINGLESS: "about a process in the cluster, which does not exist here",
    Status.ALWAYS: "it is always so here",
}
_FAMILIES = (
    (("leader-elect",), "one pass per cluster is ensured by a lease in the table"),
    (
        (
            "v",
            "vmodule",
            "log",
            "alsolog",
            "stderrthreshold",
            "one-output",
            "skip-",
            "add-dir-header",
        ),
        "about the log of a process in the cluster",
    ),
    (("gce-", "bulk-mig"), "about a provider that Outscaler does not have"),
)

MAX_EMPTY_BULK_DELETE = "max-empty-bulk-delete"
DEFAULT_ARCH = "scale-up-from-zero-default-arch"
_SPECIAL = (
    KnownFlag("ignore-taint", Fate.RENAMED, becomes="startup-taint"),
    KnownFlag(
        "scale-down-delay",
        Fate.RENAMED,
        becomes="scale-down-delay-after-add",
        reason="documentation says between two removals; the code measured from the last scale-up",
    ),
    KnownFlag("unregistered-node-removal-time", Fate.RENAMED, becomes="max-node-provision-time"),
    KnownFlag("max-grateful-termination-sec", Fate.RENAMED, becomes="max-graceful-termination-sec"),
    KnownFlag(MAX_EMPTY_BULK_DELETE, Fate.RENAMED, becomes="max-scale-down-parallelism"),
    KnownFlag(
        "scale-down-trial-interval", Fate.NOTHING, reason="removals are considered in every pass"
    ),
    *(
        KnownFlag(flag, Fate.ALWAYS, FLAGS["parallel-scale-up"], reason="it is always so here")
        for flag in ("verify-unschedulable-pods", "filter-out-schedulable-pods-uses-packing")
    ),
    KnownFlag("configmap", Fate.NOTHING, reason="a policy is read again in each pass"),
    KnownFlag(DEFAULT_ARCH, Fate.PLACE),
)


def _derived(option: OptionDefinition) -> KnownFlag:
    reason = option.note or _REASONS.get(option.status, "")
    if option.status is Status.MEANINGLESS:
        reason = next(
            (text for starts, text in _FAMILIES if option.flag.startswith(starts)), reason
        )
    return KnownFlag(option.flag, _FATES[option.status], option, reason=reason)


KNOWN: dict[str, KnownFlag] = {option.flag: _derived(option) for option in FLAGS.values()} | {
    row.flag: row for row in _SPECIAL
}


# -- how flags take values -------------------------------------------------------------------------

SHORT = frozenset({"v"})  # the only flag of Cluster Autoscaler with a form of one dash
# A boolean never takes the next word. The switch of clusterapi is no option, so that the
# table has no type for it.
BOOLEANS = {"clusterapi-cloud-config-authoritative"} | {
    flag
    for flag, known in KNOWN.items()
    if known.option is not None and known.option.kind.name == "true or false"
}
PATHS = frozenset({"kubeconfig", "cloud-config"})  # a path in a container, which nothing here opens


def flag_name(written: str) -> str:
    """Return a flag's name as Cluster Autoscaler normalises it."""
    return written.replace("_", "-")


def nearest(flag: str) -> str:
    """Return the known flag that was probably intended, or an empty text."""
    return closest(flag, KNOWN)


# -- releases --------------------------------------------------------------------------------------

Version = tuple[int, int] | None
_RELEASE = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,4})(?![0-9])")


def release_of(image: str, image_version: str) -> Version:
    """Return (major, minor) of --image-version if it is given, otherwise of the image's tag, of
    which forks of vendors keep the first two numbers; None without a release.

    Raises BadInput for an --image-version that is not a release.
    """
    tag = image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[2]
    match = _RELEASE.match(image_version or tag)
    if match is None and image_version:
        raise BadInput(
            "--image-version", f"{quote(image_version)} is not a release", "write it like 1.29"
        )
    return (int(match[1]), int(match[2])) if match else None


class ReleaseDefault(msgspec.Struct, frozen=True):
    """A default of the releases from `since` to `until`, both inclusive, that
    differs from Outscaler's.

    An import writes it out, because it decides which nodes are bought or removed. The figures are
    those of the source of each release.
    """

    flag: str
    until: tuple[int, int]
    option: str
    value: str | int | bool
    text: str
    since: tuple[int, int] = (0, 0)


_ANY = (2**31, 0)  # a bound that no release reaches
_BLOCKING = "blocking-system-pod-distruption-timeout"
# In the order of the document.
RELEASE_DEFAULTS = (
    ReleaseDefault(
        "expander",
        (1, 32),
        "expander",
        "random",
        "was the default until 1.32; least-waste leaves less unused capacity",
    ),
    ReleaseDefault(
        "expendable-pods-priority-cutoff",
        (1, 3),
        "expendablePodsPriorityCutoff",
        0,
        "was the default until 1.3",
    ),
    ReleaseDefault(
        "scale-down-delay-after-delete",
        (1, 14),
        "scaleDownDelayAfterDelete",
        "10s",
        "the scan interval was the default until 1.14",
    ),
    ReleaseDefault(
        "max-total-unready-percentage",
        (1, 1),
        "maxTotalUnreadyPercentage",
        33,
        "was the default until 1.1",
    ),
    ReleaseDefault(
        "max-graceful-termination-sec",
        (0, 6),
        "maxGracefulTerminationSec",
        60,
        "was the default until 0.6",
    ),
    ReleaseDefault(
        "cordon-node-before-terminating",
        (1, 33),
        "cordonNodeBeforeTerminating",
        value=False,
        text="was the default until 1.33",
    ),
    ReleaseDefault(
        _BLOCKING,
        _ANY,
        "blockingSystemPodDistruptionTimeout",
        "1h",
        "since 1.33 a kube-system pod without a disruption budget keeps its node for an hour only",
        since=(1, 33),
    ),
)


def release_defaults(
    version: Version, flags: Set[str], *, system_pods_skipped: bool = True
) -> tuple[ReleaseDefault, ...]:
    """Return the defaults to write out. version: None if it is unknown. flags: of the command line.

    system_pods_skipped: the value of skip-nodes-with-system-pods; without it nothing blocks a node.
    """
    if version is None:
        return ()
    return tuple(
        row
        for row in RELEASE_DEFAULTS
        if row.since <= version <= row.until
        and row.flag not in flags
        and (row.flag != _BLOCKING or system_pods_skipped)
    )


def order_of(option: str) -> int:
    """Return the position of an option in the document: the defaults of the
    table first, others as given."""
    return next(
        (at for at, row in enumerate(RELEASE_DEFAULTS) if row.option == option),
        len(RELEASE_DEFAULTS),
    )
