"""Checks of the vendors' accounts and groups, in the order of their results. They
only read: no write is tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib import DOCS
from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.model.errors import OutscalerError
from chalicelib.model.secret import SecretNotGiven
from chalicelib.policy.secret_names import named_by, observing
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_lifecycle import RepairAction
from chalicelib.providers.kit.base import QuotaReader
from chalicelib.runtime.mode_guard import permitted

_PLACES = {
    "alicloud": ("region",),
    "cherryservers": ("projectId", "clusterName"),
    "clusterapi": ("clusterName", "namespace"),
    "exoscale": ("zone",),
    "huaweicloud": ("region", "clusterId"),
}
"""Settings that tell accounts and places of a provider apart. A value that one
policy lacks matches any."""
_RIGHTS = {
    "alicloud": ": ess:RemoveInstances and ess:ScaleWithAdjustment, which the RAM policy of "
    "Cluster Autoscaler's "
    "documentation lacks; with ess:ModifyScalingGroup in its place, groups need an expected number "
    "of instances"
}
"""The rights that a key of that vendor often lacks."""
_SPOT_RIGHTS = {"alicloud": "ecs:DescribeInstances"}
_RESTART_RIGHTS = {
    "alicloud": "ecs:RebootInstance",
    "exoscale": "reboot-instance",
    "huaweicloud": "ecs:cloudServers:reboot",
}
"""The rights that notices of interruptions and restarts need besides those of every policy."""


def check_claims(context: DoctorContext) -> Iterator[Finding]:
    """DR10: a group that the policy names twice, or that another policy of the table names, too."""
    names_by_claim: dict[str, list[str]] = {}
    for group in context.snapshot.groups if context.snapshot else ():
        if group.claim:
            names_by_claim.setdefault(f"{group.provider} {group.claim}", []).append(group.id)
    for names in names_by_claim.values():
        if len(set(names)) > 1:
            text = f"{' and '.join(sorted(set(names))[:4])} are names of one group"
            fix = "keep one of the names in the policy"
            yield finding("DR10", text, fix=fix, names=names)
    own = context.policy
    for other in (policy for policy in context.policies if policy.name != own.name):
        for provider in own.providers.keys() & other.providers.keys():
            shared = sorted(_named(own, provider) & _named(other, provider))
            if shared and _is_same_account(provider, own, other):
                text = (
                    f"groups {', '.join(shared[:5])} are in the policies {own.name} and "
                    f"{other.name}"
                )
                yield finding("DR10", text, names=shared)


def _named(policy: Policy, provider: str) -> set[str]:
    """Return the groups that a policy names: in nodeGroups, and as min:max:name
    in the provider's nodes."""
    entries = policy.providers[provider].get("nodes", "").split()
    names = {group.id for group in policy.node_groups if group.provider == provider}
    return names | {entry.split(":", 2)[2] for entry in entries if entry.count(":") >= 2}


def _is_same_account(provider: str, policy: Policy, other_policy: Policy) -> bool:
    """Return whether no setting tells the account or place of one policy from that of the other."""
    settings, other_settings = policy.providers[provider], other_policy.providers[provider]
    pairs = (
        (settings.get(key, ""), other_settings.get(key, "")) for key in _PLACES.get(provider, ())
    )
    return not any(value and other_value and value != other_value for value, other_value in pairs)


def check_groups(context: DoctorContext) -> Iterator[Finding]:
    """DR11: providers and groups that cannot be read, do not exist or are held; groups that the
    policy names and the vendor does not have."""
    snapshot = context.required_snapshot
    gaps = [gap for gap in snapshot.gaps if gap.kind.startswith("provider/")]
    for gap in gaps:
        provider = gap.kind.partition("/")[2]
        if missing := _not_given(context, provider):
            text = f"{provider} was not read, because its secret {missing[0]} is not given"
            fix = (
                f"add {' '.join(f'--secret {name}=FILE' for name in missing)}, so that the account "
                "is checked"
            )
            # nothing acts unchecked
            severity = Severity.ERROR if permitted(context.policy).act else Severity.UNASKED
            yield finding("DR11", text, severity=severity, fix=fix, names=[gap.kind])
            continue
        text = f"{provider}: {gap.place or gap.name}: {gap.detail}".replace(": : ", ": ")
        yield finding("DR11", text, names=[gap.kind])
    for group in snapshot.groups:
        if group.error:
            text = f"group {group.id} of {group.provider}: {group.error[:300]}"
            fix = "correct the group at the vendor, or take it out of the policy"
            yield finding("DR11", text, fix=fix, names=[group.id])
    unread_providers = {gap.kind.partition("/")[2] for gap in gaps}
    existing = {
        (group.provider, name) for group in snapshot.groups for name in (group.id, *group.aliases)
    }
    for entry in context.policy.node_groups:
        if entry.provider not in unread_providers and (entry.provider, entry.id) not in existing:
            text = f"group {entry.id} of {entry.provider} does not exist"
            fix = "write the id as outscaler plan shows it, or take the entry out"
            yield finding("DR11", text, fix=fix, names=[entry.id])


def _not_given(context: DoctorContext, provider: str) -> list[str]:
    """Return the secrets with which passes would read the provider, and which no file replaces."""
    missing = []
    for path, name, _ in named_by(observing(context.policy)):
        if path[:2] == ("providers", provider) and name not in context.replaced:
            try:
                context.read_secret(name)
            except SecretNotGiven:
                missing.append(name)
            except OutscalerError:
                pass
    return missing


def check_bounds(context: DoctorContext) -> Iterator[Finding]:
    """DR12: bounds of the policy that the vendor's bounds narrow."""
    groups = {
        (group.provider, name): group
        for group in context.required_snapshot.groups
        for name in (group.id, *group.aliases)
    }
    for provider, name, least, most in _policy_bounds(context.policy):
        group = groups.get((provider, name))
        if (
            group is None
            or group.error
            or (least in (None, group.min) and most in (None, group.max))
        ):
            continue
        bounds = f"{'' if least is None else least}..{'' if most is None else most}"
        text = (
            f"group {name}: the policy has the bounds {bounds}, and {group.min}..{group.max} is in "
            "force"
        )
        yield finding("DR12", text, group=name, min=group.min, max=group.max)


def _policy_bounds(policy: Policy) -> Iterator[tuple[str, str, int | None, int | None]]:
    """Yield (provider, group, min, max) of nodeGroups and of the providers' nodes."""
    for entry in policy.node_groups:
        yield entry.provider, entry.id, entry.min, entry.max
    for provider, settings in policy.providers.items():
        for text in settings.get("nodes", "").split():
            least, _, rest = text.partition(":")
            most, _, name = rest.partition(":")
            if least.isdigit() and most.isdigit() and name:
                yield provider, name, int(least), int(most)


def check_quotas(context: DoctorContext) -> Iterator[Finding]:
    """DR13: groups that may grow by more instances than the account's quota leaves."""
    for provider in (
        provider for _, provider in context.providers if isinstance(provider, QuotaReader)
    ):
        groups = context.required_snapshot.groups
        own = [group for group in groups if group.provider == provider.name and not group.error]
        growth, remaining = (
            sum(max(0, group.max - group.target) for group in own),
            provider.remaining(),
        )
        if remaining is not None and growth > remaining:
            text = (
                f"the groups of {provider.name} may grow by {growth} nodes, the quota leaves "
                f"{remaining}"
            )
            yield finding("DR13", text, growth=growth, left=remaining)


def check_permissions(context: DoctorContext) -> Iterator[Finding]:
    """DR11, UNASKED: rights to change groups, which no vendor but Cluster API can be
    asked for without a change."""
    for name in sorted(set(context.policy.providers) - {"clusterapi"}):
        text = f"{name}: rights to change groups cannot be asked for without a change"
        further = "".join(f"; {use} need {right}" for use, right in _further_rights(context, name))
        fix = (
            "compare the key's rights with "
            f"{DOCS}/providers/{name}.md{_RIGHTS.get(name, '')}{further}"
        )
        yield finding("DR11", text, severity=Severity.UNASKED, fix=fix)


def _further_rights(context: DoctorContext, provider: str) -> Iterator[tuple[str, str]]:
    """Yield what this policy uses of a provider besides the usual, and the right that it needs."""
    policy, groups = context.policy, context.snapshot.groups if context.snapshot else ()
    has_spot = policy.spot is not None or any(
        group.spot for group in groups if group.provider == provider
    )
    if provider in _SPOT_RIGHTS and has_spot:
        yield "notices of interruptions", _SPOT_RIGHTS[provider]
    rules = policy.node_lifecycle.repair if policy.node_lifecycle is not None else ()
    if provider in _RESTART_RIGHTS and any(rule.action is RepairAction.RESTART for rule in rules):
        yield "restarts", _RESTART_RIGHTS[provider]
