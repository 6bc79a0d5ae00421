"""Checks of RBAC: every verb that Outscaler uses in a cluster is asked for with a
SelfSubjectAccessReview.

A review stores nothing, and every authenticated user may create one. SelfSubjectRulesReviews are
not used for the rows, because they do not tell a Role's rule from a ClusterRole's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from chalicelib.cli.commands.manifests import apply_command, manifest_name
from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.cli.doctor.needed_rules import (
    EVERYWHERE,
    MANAGEMENT,
    NAMESPACED,
    WORKLOAD,
    NeededRule,
    RoleFile,
    capi_namespaces,
    needed_rules,
)
from chalicelib.cluster.client import KubeClient, path_segment
from chalicelib.cluster.errors import ClusterError
from chalicelib.cluster.listed_resources import RESOURCES
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.runtime.mode_guard import permitted

_REVIEWS = "/apis/authorization.k8s.io/v1"
_OPTIONAL = {resource.plural for resource in RESOURCES if not resource.required}


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _GrantedRule(msgspec.Struct, frozen=True, rename="camel"):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None


class _GrantedRules(msgspec.Struct, frozen=True, rename="camel"):
    resource_rules: tuple[_GrantedRule, ...] | None = None


class _RulesReview(msgspec.Struct, frozen=True):
    status: _GrantedRules = _GrantedRules()


def check_permissions(context: DoctorContext) -> Iterator[Finding]:
    """DR04: rules that are missing, one finding each."""
    acts = permitted(context.policy).act
    rules = needed_rules(context.policy)
    for place, client in ((WORKLOAD, context.workload), (MANAGEMENT, context.management)):
        for rule in (rule for rule in rules if rule.place == place):
            if client is None:
                reason = dict(context.unreachable).get(place, "no kubeconfig is given")
                yield _unasked(f"{place} cluster: {reason}")
                break
            yield from _missing_rights(client, rule, acts=acts)


def _missing_rights(client: KubeClient, rule: NeededRule, *, acts: bool) -> Iterator[Finding]:
    missing: list[tuple[str, str]] = []
    for resource, verb, name in itertools.product(rule.resources, rule.verbs, rule.names or ("",)):
        try:
            if not _is_allowed(client, rule.group, resource, verb, rule.namespace, name):
                missing.append((resource, verb))
        except ClusterError as error:
            yield _unasked(f"{resource}: {verb} could not be asked for: {error.message}")
            return
    if not missing:
        return
    place = f" in namespace {rule.namespace}" if rule.namespace else ""
    text = (
        f"{_grouped(missing)} is not allowed{place} in the {rule.place} cluster; needed for "
        f"{rule.needed_for}"
    )
    yield finding(
        "DR04",
        text,
        severity=_severity(rule, [resource for resource, _ in missing], acts=acts),
        fix=f"{_remedy(rule)}\n{rule_yaml(rule)}",
        missing=[f"{resource} {verb}" for resource, verb in dict.fromkeys(missing)],
        place=rule.place,
    )


def _remedy(rule: NeededRule) -> str:
    """Return how to get the role that grants a rule, in one line; the rule itself follows it."""
    role = f"ClusterRole {rule.source.role}"
    if rule.namespace:
        role = f"Role {rule.source.role} in namespace {rule.namespace}"
    text = f"{_applied(rule.source)}, which grants in {role}:"
    if rule.source.file != EVERYWHERE:
        return text
    return (
        f"set namespace in providers.clusterapi, and {apply_command(NAMESPACED)}; only where the "
        "namespaces cannot be "
        f"named: {text}"
    )


def _applied(role_file: RoleFile) -> str:
    if not role_file.edits:
        return apply_command(role_file.file)
    name = manifest_name(role_file.file)
    words = " and ".join(f"{needed} in place of {written}" for written, needed in role_file.edits)
    return (
        f"outscaler manifests {name} > {name}.yaml, write {words} into it, then kubectl apply -f "
        f"{name}.yaml"
    )


def _grouped(rights: Sequence[tuple[str, str]]) -> str:
    """Return rights as text, with the resources of the same verbs together.
    rights: (resource, verb)."""
    verbs: dict[str, list[str]] = {}
    for resource, verb in dict.fromkeys(rights):
        verbs.setdefault(resource, []).append(verb)
    resources: dict[str, list[str]] = {}
    for resource, own_verbs in verbs.items():
        resources.setdefault(", ".join(own_verbs), []).append(resource)
    return "; ".join(f"{', '.join(names)}: {own_verbs}" for own_verbs, names in resources.items())


def rule_yaml(rule: NeededRule) -> str:
    """Return the rule as an entry of a role, in one line."""
    names = f", resourceNames: [{', '.join(rule.names)}]" if rule.names else ""
    resources, verbs = ", ".join(rule.resources), ", ".join(rule.verbs)
    return f'- {{apiGroups: ["{rule.group}"], resources: [{resources}]{names}, verbs: [{verbs}]}}'


def _severity(rule: NeededRule, resources: Sequence[str], *, acts: bool) -> Severity:
    """Optional lists make verdicts less certain. Rights to change count
    once the policy is active."""
    if not rule.required or (rule.acts and not acts):
        return Severity.WARNING
    listed = rule.verbs == ("list",) and rule.place == WORKLOAD
    return Severity.WARNING if listed and _OPTIONAL.issuperset(resources) else Severity.ERROR


def _is_allowed(
    client: KubeClient, group: str, resource: str, verb: str, namespace: str, name: str
) -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "verb": verb,
        "namespace": namespace,
        "name": name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = client.request("POST", f"{_REVIEWS}/selfsubjectaccessreviews", body=body)
    return msgspec.json.decode(answer, type=_Review).status.allowed


_DANGEROUS = (
    ("", "pods", "delete"),
    ("", "pods", "create"),
    ("", "nodes", "delete"),
    ("", "secrets", "list"),
    ("", "secrets", "get"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
)


def check_superfluous(context: DoctorContext) -> Iterator[Finding]:
    """DR05: rights that nothing here uses."""
    yield from _dangerous_rights(context)
    # Rights to Cluster API's objects of all namespaces, where the policy names some.
    clients = {WORKLOAD: context.workload, MANAGEMENT: context.management}
    removals = [
        rule
        for rule in needed_rules(context.policy)
        if rule.source.file == NAMESPACED and rule.acts
    ]
    for rule in removals[-1:]:
        client = clients[rule.place]
        if client is None or not _is_allowed(
            client, rule.group, rule.resources[0], rule.verbs[-1], "", ""
        ):
            return
        names = ", ".join(capi_namespaces(context.policy))
        text = (
            f"may also change machines of all namespaces in the {rule.place} cluster; the policy "
            f"names {names}"
        )
        fix = (
            f"{_applied(rule.source)}, and then kubectl delete clusterrole,clusterrolebinding "
            f"{rule.source.role}"
        )
        yield finding("DR05", text, fix=fix, superfluous=[f"{rule.verbs[-1]} {rule.resources[0]}"])


def _dangerous_rights(context: DoctorContext) -> Iterator[Finding]:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "kube-system"},
    }
    answer = context.cluster.request("POST", f"{_REVIEWS}/selfsubjectrulesreviews", body=body)
    granted = msgspec.json.decode(answer, type=_RulesReview).status.resource_rules or ()
    rights = [
        f"{verb} {resource}"
        for group, resource, verb in _DANGEROUS
        if any(_covers(rule, group, resource, verb) for rule in granted)
    ]
    if rights:
        text = f"may also: {', '.join(rights)} in kube-system; nothing of it is used"
        yield finding("DR05", text, superfluous=rights)


def _covers(rule: _GrantedRule, group: str, resource: str, verb: str) -> bool:
    pairs = ((group, rule.api_groups), (resource, rule.resources), (verb, rule.verbs))
    return not rule.resource_names and all(
        bool({word, "*"} & set(words or ())) for word, words in pairs
    )


def check_admission(context: DoctorContext) -> Iterator[Finding]:
    """DR04: whether admission accepts a taint, asked by a dry run on one
    node, which stores nothing."""
    if not context.probe:
        text = "whether admission (Gatekeeper, Kyverno, webhooks) accepts taints was not asked"
        yield _unasked(text, "--probe-writes asks with dry runs, which may call webhooks")
        return
    nodes = context.required_snapshot.nodes
    if not nodes:
        yield _unasked("there is no node for a dry run of a taint")
        return
    name = nodes[0].name
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in nodes[0].taints
        if taint.key != TO_BE_DELETED
    ]
    taints.append({"key": TO_BE_DELETED, "value": "0", "effect": "NoSchedule"})
    try:
        context.cluster.request(
            "PATCH",
            f"/api/v1/nodes/{path_segment(name)}",
            query={"dryRun": "All"},
            body={"spec": {"taints": taints}},
            content_type="application/merge-patch+json",
        )
    except ClusterError as error:
        severity = Severity.ERROR if permitted(context.policy).act else Severity.WARNING
        text = f"a dry run of a taint on node {name} is refused: {error.message}"
        fix = f"permit the taint {TO_BE_DELETED} by this account in the admission policy"
        yield finding("DR04", text, severity=severity, fix=fix, node=name)


def _unasked(text: str, fix: str = "") -> Finding:
    return finding("DR04", text, severity=Severity.UNASKED, fix=fix)
