"""Checks of the vendors' accounts and groups, in the order of their results. They only read: no write is tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chalicelib.command.doctor.context import Check, DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.model.group import NodeGroup
from chalicelib.model.policy import Policy
from chalicelib.providers.base import QuotaReader

_PLACES = {
    "alicloud": ("region",),
    "cherryservers": ("projectId", "clusterName"),
    "clusterapi": ("clusterName", "namespace"),
    "exoscale": ("zone",),
    "huaweicloud": ("region", "clusterId"),
}
"""Settings that tell accounts and places of a provider apart. A value that one policy lacks matches any."""
_RIGHTS = {
    "alicloud": ": ess:RemoveInstances and ess:ScaleWithAdjustment, which the RAM policy of Cluster Autoscaler's "
    "documentation lacks; with ess:ModifyScalingGroup in its place, groups need an expected number of instances"
}
"""The rights that a key of that vendor often lacks."""


def check_claims(context: DoctorContext) -> Sequence[Finding]:
    """DR10: a group that the policy names twice, or that another policy of the table names, too."""
    found = list(_twice(context.snapshot.groups if context.snapshot else ()))
    own = context.policy
    for other in (each for each in context.policies if each.name != own.name):
        for provider in own.providers.keys() & other.providers.keys():
            if not _same_place(provider, own, other):
                continue
            shared = sorted(_named(own, provider) & _named(other, provider))
            if shared:
                found.append(
                    _error(
                        "DR10",
                        f"groups {', '.join(shared[:5])} are in the policies {own.name} and {other.name}",
                        "take them out of one of the policies",
                        shared,
                    )
                )
    return found


def _twice(groups: Sequence[NodeGroup]) -> Iterator[Finding]:
    by_claim: dict[str, list[str]] = {}
    for group in groups:
        if group.claim:
            by_claim.setdefault(f"{group.provider} {group.claim}", []).append(group.id)
    for names in by_claim.values():
        if len(set(names)) > 1:
            yield _error(
                "DR10",
                f"{' and '.join(sorted(set(names))[:4])} are names of one group",
                "keep one of the names in the policy",
                names,
            )


def _named(policy: Policy, provider: str) -> set[str]:
    """Return the groups that a policy names: in nodeGroups, and as min:max:name in the provider's nodes."""
    listed = policy.providers[provider].get("nodes", "").split()
    names = {each.id for each in policy.node_groups if each.provider == provider}
    return names | {entry.split(":", 2)[2] for entry in listed if entry.count(":") >= 2}


def _same_place(provider: str, policy: Policy, other_policy: Policy) -> bool:
    def differs(key: str) -> bool:
        values: tuple[Mapping[str, str], Mapping[str, str]] = (
            policy.providers[provider],
            other_policy.providers[provider],
        )
        first, second = (each.get(key, "") for each in values)
        return bool(first and second and first != second)

    return not any(differs(key) for key in _PLACES.get(provider, ()))


def check_groups(context: DoctorContext) -> Sequence[Finding]:
    """DR11: providers and groups that cannot be read, do not exist or are held; groups that the policy names and the
    vendor does not have."""
    snapshot = context.seen
    found = [
        _error(
            "DR11",
            f"{gap.kind.partition('/')[2]}: {gap.place or gap.name}: {gap.detail}".replace(": : ", ": "),
            "docs/providers has the settings and rights of the provider",
            [gap.kind],
        )
        for gap in snapshot.gaps
        if gap.kind.startswith("provider/")
    ]
    found += [
        _error(
            "DR11",
            f"group {group.id} of {group.provider}: {group.error[:300]}",
            "correct the group at the vendor, or take it out of the policy",
            [group.id],
        )
        for group in snapshot.groups
        if group.error
    ]
    unread = {gap.kind.partition("/")[2] for gap in snapshot.gaps if gap.kind.startswith("provider/")}
    there = {(group.provider, name) for group in snapshot.groups for name in (group.id, *group.aliases)}
    for entry in context.policy.node_groups:
        if entry.provider not in unread and (entry.provider, entry.id) not in there:
            found.append(
                _error(
                    "DR11",
                    f"group {entry.id} of {entry.provider} does not exist",
                    "write the id as outscaler plan shows it, or take the entry out",
                    [entry.id],
                )
            )
    return found


def check_bounds(context: DoctorContext) -> Sequence[Finding]:
    """DR12: bounds of the policy that the vendor's bounds narrow."""
    groups = {(group.provider, name): group for group in context.seen.groups for name in (group.id, *group.aliases)}
    found = []
    for provider, name, least, most in _stated(context.policy):
        group = groups.get((provider, name))
        if group is None or group.error or (least in (None, group.min) and most in (None, group.max)):
            continue
        stated = f"{'' if least is None else least}..{'' if most is None else most}"
        found.append(
            Finding(
                id="DR12",
                severity=Severity.WARNING,
                subject="bounds",
                message=f"group {name}: the policy has the bounds {stated}, and {group.min}..{group.max} is in force",
                fix="change the bounds at the vendor or in the policy, so that both agree",
                evidence={"group": name, "min": group.min, "max": group.max},
            )
        )
    return found


def _stated(policy: Policy) -> Iterator[tuple[str, str, int | None, int | None]]:
    for entry in policy.node_groups:
        yield entry.provider, entry.id, entry.min, entry.max
    for provider, settings in policy.providers.items():
        for text in settings.get("nodes", "").split():
            least, _, rest = text.partition(":")
            most, _, name = rest.partition(":")
            if least.isdigit() and most.isdigit() and name:
                yield provider, name, int(least), int(most)


def check_quotas(context: DoctorContext) -> Sequence[Finding]:
    """DR13: groups that may grow by more instances than the account's quota leaves."""
    found = []
    for provider in (each for _, each in context.providers if isinstance(each, QuotaReader)):
        groups = [each for each in context.seen.groups if each.provider == provider.name and not each.error]
        growth = sum(max(0, each.max - each.target) for each in groups)
        left = provider.remaining()
        if left is not None and growth > left:
            found.append(
                Finding(
                    id="DR13",
                    severity=Severity.WARNING,
                    subject="quota",
                    message=f"the groups of {provider.name} may grow by {growth} nodes, the quota leaves {left}",
                    fix="ask the vendor for more, or lower the maximums",
                    evidence={"growth": growth, "left": left},
                )
            )
    return found


def check_permissions(context: DoctorContext) -> Sequence[Finding]:
    """DR11, UNASKED: rights to change groups, which no vendor but Cluster API can be asked for without a change."""
    vendors = sorted(set(context.policy.providers) - {"clusterapi"})
    return [
        Finding(
            id="DR11",
            severity=Severity.UNASKED,
            subject="vendor",
            message=f"{name}: rights to change groups cannot be asked for without a change",
            fix=f"compare the key's rights with docs/providers/{name}.md{_RIGHTS.get(name, '')}",
        )
        for name in vendors
    ]


def _error(id_: str, message: str, fix: str, names: Sequence[str]) -> Finding:
    return Finding(
        id=id_, severity=Severity.ERROR, subject="vendor", message=message, fix=fix, evidence={"names": list(names)}
    )


VENDOR_CHECKS: tuple[Check, ...] = (
    Check(("DR10",), "vendor", check_claims),
    Check(("DR11",), "vendor", check_groups),
    Check(("DR12",), "bounds", check_bounds),
    Check(("DR13",), "quota", check_quotas),
    Check(("DR11",), "vendor", check_permissions),
)
