"""What becomes of every flag that any release of Cluster Autoscaler has had.

Most rows are derived from policy/options.py, so that a flag cannot have one meaning in a document and another in an
import. The tables here name the flags whose translation differs from that.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.policy.diagnostics import closest
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
    """One flag. option: how its value is read. becomes: the flag that it is renamed to. reason: text of its row."""

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
        ("v", "vmodule", "log", "alsolog", "stderrthreshold", "one-output", "skip-", "add-dir-header"),
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
    KnownFlag("scale-down-trial-interval", Fate.NOTHING, reason="removals are considered in every pass"),
    KnownFlag("verify-unschedulable-pods", Fate.ALWAYS, FLAGS["parallel-scale-up"], reason="it is always so here"),
    KnownFlag(
        "filter-out-schedulable-pods-uses-packing",
        Fate.ALWAYS,
        FLAGS["parallel-scale-up"],
        reason="it is always so here",
    ),
    KnownFlag("configmap", Fate.NOTHING, reason="a policy is read again in each pass"),
    KnownFlag(DEFAULT_ARCH, Fate.PLACE),
)


def _derived(option: OptionDefinition) -> KnownFlag:
    reason = option.note or _REASONS.get(option.status, "")
    if option.status is Status.MEANINGLESS:
        reason = next((text for starts, text in _FAMILIES if option.flag.startswith(starts)), reason)
    return KnownFlag(option.flag, _FATES[option.status], option, reason=reason)


KNOWN: dict[str, KnownFlag] = {option.flag: _derived(option) for option in FLAGS.values()} | {
    row.flag: row for row in _SPECIAL
}


def nearest(flag: str) -> str:
    """Return the known flag that was probably intended, or an empty text."""
    return closest(flag, KNOWN)
