"""The compiled form of a policy: what a function reads instead of the YAML text.

To parse YAML and to import the policy reader would cost every cold start, so `outscaler
apply` stores its Policy, too:

    20 characters: the version of the form   32 bytes: SHA-256 of the text   zlib of the Policy as
                                                                             MessagePack

The text stays the document. A form of another version, of another text, or with anything wrong in
it is not used: the text is read again, which also reports what is wrong. The version changes with
the release, with FORMAT, and with every type, field and default of the Policy, so no release uses
the form of another.

The decoder checks types. What depends on the deployment or on the machine (secrets, hosts, files,
time zones) and the sanity of the numbers is checked again whenever the form is read.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

import chalicelib
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.scaling_rules import Rule
from chalicelib.model.struct_form import DIGITS, form_of
from chalicelib.net.vendor_hosts import mistakes
from chalicelib.policy.secret_names import named_by, problem
from chalicelib.policy.settings.cluster_policy import SCAN_INTERVAL, Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.notifications import QuietHours
from chalicelib.policy.settings.schedules import Schedule

FORMAT = 1
"""Increase it when the same bytes mean something else although no type has changed."""

LARGEST = 4 * 2**20
"""Bytes of the MessagePack; a larger one is neither written nor read."""

_VERSION, _DIGEST = DIGITS, 32
_MOST = 2**63
_MAY_BE_NEGATIVE = frozenset(
    {"priority", "expendable_pods_priority_cutoff", "drain_priority_config"}
)


class NotUsable(Exception):
    """The compiled form cannot be used; the text says the same. other: it is of another
    release or text, or the deployment does not permit the policy, so that nothing is
    wrong with the form itself."""

    def __init__(self, why: str, *, other: bool = False) -> None:
        super().__init__(why)
        self.other = other


def compiled(policy: Policy, text: str) -> bytes | None:
    """The compiled form of the policy that `text` says; None where it would
    be too large to be read."""
    data = msgspec.msgpack.encode(policy)
    if len(data) > LARGEST:
        return None
    return form_version().encode() + _digest(text) + zlib.compress(data, 6)


def decompiled(form: bytes, text: str, cluster: str, deployment: Deployment) -> Policy:
    """The policy in a compiled form, which the cluster of that name has stored with
    this text. Raises NotUsable."""
    if form[:_VERSION] != form_version().encode():
        raise NotUsable("it is of another release", other=True)
    if form[_VERSION : _VERSION + _DIGEST] != _digest(text):
        raise NotUsable("it is of another text")
    policy = _decoded(form[_VERSION + _DIGEST :])
    if why := _implausible(policy):
        raise NotUsable(why)
    if not _permitted(policy, cluster, deployment):
        raise NotUsable("the deployment does not permit it", other=True)
    return policy


def form_version() -> str:
    """20 hexadecimal digits that stand for the release, the format, and the types of a
    Policy with their defaults."""
    return form_of(Policy, FORMAT, chalicelib.__version__)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _decoded(packed: bytes) -> Policy:
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, LARGEST + 1)
        if len(data) > LARGEST:
            raise NotUsable("it is too large")
        if not unpacker.eof or unpacker.unused_data:
            raise NotUsable("it is cut off, or more follows")
        return msgspec.msgpack.decode(data, type=Policy)
    except (zlib.error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotUsable(f"it cannot be decoded: {str(error)[:100]}") from None


def _implausible(policy: Policy) -> str:
    """What no document can say, in spite of right types; empty if there is none."""
    for name, number in _numbers(policy, ""):
        if (
            not math.isfinite(number)
            or abs(number) > _MOST
            or (number < 0 and name not in _MAY_BE_NEGATIVE)
        ):
            return f"{name} is out of bounds"
    if not SCAN_INTERVAL[0] <= policy.scan_interval <= SCAN_INTERVAL[1]:
        return "scan_interval is out of bounds"
    if any(pool.provider not in policy.providers for pool in policy.managed_pools):
        return "a managed pool has no provider"
    for group in policy.node_groups:
        if group.provider not in policy.providers:
            return "a node group has no provider"
        if group.min is not None and group.max is not None and group.min > group.max:
            return "min is above max"
    return _no_clock(policy)


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """(attribute, number) of every number in a value."""
    if isinstance(value, int | float):
        yield name, value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _numbers(getattr(value, field), field)
    elif isinstance(value, tuple):
        for item in value:
            yield from _numbers(item, name)
    elif isinstance(value, dict):
        yield from _numbers(tuple(value.values()), name)


def _no_clock(policy: Policy) -> str:
    """Whether a cron or a time zone is not known on this machine; empty if all are."""
    timed: tuple[Window | Rule | Schedule | QuietHours | DisruptionBudget, ...] = (
        *policy.maintenance_windows,
        *(budget for budget in policy.disruption_budgets if budget.cron),
        *(rule for rule in policy.rules if rule.cron),
        *policy.schedules,
        *(policy.notifications.quiet_hours if policy.notifications is not None else ()),
    )
    zones = {entry.time_zone for entry in (*timed, *policy.rules)} | {
        policy.scale_up.cron_time_zone
    }
    if not timed and zones <= {"UTC"}:
        return ""
    from chalicelib.model.errors import BadInput

    # as in names_and_times.py
    from chalicelib.schedules.cron import check_cron, check_zone

    try:
        for zone in zones:
            check_zone(zone)
        for entry in timed:
            check_cron(entry.cron)
    except BadInput as error:
        return str(error).splitlines()[0]
    return ""


def _permitted(policy: Policy, cluster: str, deployment: Deployment) -> bool:
    """Whether policy/admission.py would let this deployment's functions use it."""
    if policy.kubernetes.kubeconfig_file:
        return False
    for provider, settings in policy.providers.items():
        with_files = msgspec.structs.replace(deployment, files=True)  # files are refused here
        if any(key.endswith("File") for key in settings) or any(
            mistakes(provider, settings, with_files)
        ):
            return False
    return not any(problem(name, cluster, (use,), deployment) for _, name, use in named_by(policy))
