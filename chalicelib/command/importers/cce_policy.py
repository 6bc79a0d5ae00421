"""Builds one policy from settings of Huawei Cloud CCE's add-on and from HorizontalNodeAutoscaler objects, with warnings
for its author. An object with a mistake is never imported partially."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.command.importers.autoscaler_input import ImportArguments
from chalicelib.command.importers.autoscaler_policy import DNS_LABEL
from chalicelib.command.importers.cce_addon import KEYS, read_addon
from chalicelib.command.importers.documents import kind_of, located_documents, mapping
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy import KubernetesAccess, Policy
from chalicelib.model.scaling_rules import Rule, RuleObject
from chalicelib.policy.horizontal_node_autoscaler import read_object

PROVIDER = "huaweicloud"
_ADDON = "autoscaler"
_NOT_IN_NAMES = re.compile(r"[\s/\x00-\x1f\x7f]+")
_LONGEST_NAME = 100


class CceDocument(msgspec.Struct, frozen=True):
    """One relevant document. place: the file's name. cluster_id: of an add-on that names its cluster."""

    place: str
    content: Mapping[str, Any]
    cluster_id: str = ""


class CceDocuments(msgspec.Struct, frozen=True):
    """All documents, in the order of the files. others: ignored kinds, each once per file."""

    addons: tuple[CceDocument, ...] = ()
    objects: tuple[CceDocument, ...] = ()
    others: tuple[str, ...] = ()


def sort_documents(texts: Mapping[str, str]) -> CceDocuments:
    """Sort place -> text, as JSON or as YAML with any number of documents, by the kind of its documents.

    Raises BadInput for a file that cannot be read as either, and for one without relevant documents.
    """
    addons: list[CceDocument] = []
    objects: list[CceDocument] = []
    others: dict[str, None] = {}
    for place, text in texts.items():
        relevant = len(addons) + len(objects)
        for document in located_documents(place, text):
            content = mapping(document.content)
            kind = kind_of(content)
            if kind.lower() == "horizontalnodeautoscaler":
                objects.append(CceDocument(place, content))
            elif (addon := _addon_document(place, content, kind)) is not None:
                addons.append(addon)
            elif not isinstance(document.content, Mapping):
                others[f"{place}: something that is not an object"] = None
            elif kind.lower() != "addon" and "addonTemplateName" not in mapping(content.get("spec")):
                others[f"{place}: {kind[:60] or 'an object without a kind'}"] = None
        if len(addons) + len(objects) == relevant:
            raise BadInput(
                place,
                "holds no settings of the autoscaler add-on and no HorizontalNodeAutoscaler objects",
                "give Cluster Autoscaler's manifest, values or command line; or the answer of GET /api/v3/addons, its "
                "custom block, or the objects as kubectl shows them",
            )
    return CceDocuments(tuple(addons), tuple(objects), tuple(others))


def _addon_document(place: str, content: Mapping[str, Any], kind: str) -> CceDocument | None:
    """Return settings in any wrapper: an item of the list of add-ons, its values, or its block `custom` alone."""
    spec = mapping(content.get("spec"))
    if kind.lower() == "addon" or (not kind and "addonTemplateName" in spec):
        if spec.get("addonTemplateName") != _ADDON:
            return None
        cluster, custom = spec.get("clusterID"), mapping(mapping(spec.get("values")).get("custom"))
        return CceDocument(place, custom, cluster if isinstance(cluster, str) else "")
    values = mapping(content.get("values", content))
    if not kind and "custom" in values:
        return CceDocument(place, mapping(values["custom"]))
    return CceDocument(place, content) if not kind and not KEYS.isdisjoint(content) else None


def assemble(documents: CceDocuments, arguments: ImportArguments) -> tuple[Policy, tuple[str, ...]]:
    """Return (policy, warnings). The mode is shadow, so that an operator reviews the policy before it acts.

    The policy lacks values that were not given; reading it reports them. Raises InputErrors for objects with mistakes,
    and for settings of two clusters.
    """
    if len(documents.addons) > 1:
        first, second = (addon.place for addon in documents.addons[:2])
        raise BadInput(second, f"holds settings of the add-on, and so does {first}", "import one cluster at a time")
    warnings = [f"{other}: passed over" for other in documents.others]
    addon_cluster = ""
    if documents.addons:
        (document,) = documents.addons
        addon = read_addon(document.content, document.place)
        addon_cluster = document.cluster_id or addon.cluster_id
        warnings += addon.warnings
        if addon.scale_up.unschedulable_pods or addon.scale_up.rules or addon.options.scale_down_enabled:
            warnings.append(
                "the vendor's add-on is switched on: switch it off (scaleUpUnscheduledPodEnabled, "
                "scaleUpUtilizationEnabled, scaleDownEnabled) before the mode is active"
            )
    else:
        # The interval is not a decision about nodes, and ten seconds would multiply the passes.
        interval = Policy(name="").scan_interval
        addon = msgspec.structs.replace(read_addon({}, "the add-on's defaults"), scan_interval=interval)
        warnings.append("no settings of the add-on are given: its defaults are written out, removals off among them")
    rules, rule_warnings = _read_rules(documents.objects, arguments.time_zone)
    warnings += rule_warnings
    cluster_id = arguments.cluster_id or addon_cluster
    if addon_cluster and cluster_id != addon_cluster:
        warnings.append(f"the settings are those of cluster {addon_cluster}, and --cluster-id says {cluster_id}")
    name = arguments.name or (cluster_id if DNS_LABEL.match(cluster_id) else "imported")
    if not arguments.name:
        warnings.append(f"the cluster is called {name}; --name says otherwise")
    scale_up = msgspec.structs.replace(addon.scale_up, cron_time_zone=arguments.time_zone)
    if documents.objects:
        scale_up = msgspec.structs.replace(scale_up, horizontal_node_autoscalers=False)
        warnings.append(
            "scaleUp.horizontalNodeAutoscalers is false, so that the objects do not count in addition to these rules"
        )
    settings = {
        "clusterId": cluster_id,
        "region": arguments.region,
        "projectId": arguments.project_id,
        "credentialsSecret": arguments.credentials_secret,
    }
    policy = Policy(
        name=name,
        kubernetes=KubernetesAccess(kubeconfig_secret=arguments.kubeconfig_secret),
        providers={PROVIDER: {key: value for key, value in settings.items() if value}},
        rules=rules,
        scale_up=scale_up,
        options=addon.options,
        scan_interval=addon.scan_interval,
    )
    return policy, tuple(warnings)


# -- rules -----------------------------------------------------------------------------------------------------------


def _read_rules(documents: Sequence[CceDocument], time_zone: str) -> tuple[tuple[Rule, ...], list[str]]:
    """Return (rules, warnings). time_zone: of their cron expressions; the objects do not contain one.

    Raises InputErrors with every mistake of every object, each with the file and the object's name.
    """
    problems: list[BadInput] = []
    warnings: list[str] = []
    rules: dict[str, Rule] = {}
    keys: set[str] = set()
    for document in documents:
        rule_object = read_object(document.content)
        where = f"{document.place}: {rule_object.key}" if rule_object.name else document.place
        problems += [BadInput(where, problem) for problem in rule_object.problems]
        if rule_object.name and rule_object.key in keys:
            problems.append(BadInput(where, "is given twice", "give each object once"))
        keys.add(rule_object.key)
        warnings += [f"{where}: {warning}" for warning in rule_object.warnings]
        if rule_object.disabled:
            warnings.append(f"{where}: is disabled, so that its rules are not carried over")
        elif not rule_object.problems:
            warnings += [f"{where}: {warning}" for warning in _add_rules(rule_object, time_zone, rules)]
    if problems:
        raise InputErrors(tuple(problems))
    return tuple(rules.values()), warnings


def _add_rules(rule_object: RuleObject, time_zone: str, rules: dict[str, Rule]) -> Iterable[str]:
    for rule in rule_object.rules:
        if not rule.groups:
            yield f"rule {rule.name}: has no target and is not carried over"
            continue
        name = _unique_name(rule.name, rule_object.name, rules)
        if name != rule.name:
            yield (
                f"rule {rule.name}: is called {name} in the policy, where names are unique and have "
                "no spaces and slashes"
            )
        zone = time_zone if rule.cron else "UTC"
        rules[name] = msgspec.structs.replace(rule, name=name, time_zone=zone, source="")


def _unique_name(rule_name: str, object_name: str, rules: Mapping[str, Rule]) -> str:
    """Return the rule's own name if it is valid; otherwise prefixed with its object's name and followed by a number."""
    name = _NOT_IN_NAMES.sub("-", rule_name)[:_LONGEST_NAME]
    if name not in rules:
        return name
    prefixed = _NOT_IN_NAMES.sub("-", f"{object_name}.{name}")[: _LONGEST_NAME - 4]
    candidates = (prefixed if number == 1 else f"{prefixed}-{number}" for number in range(1, 10_000))
    return next(candidate for candidate in candidates if candidate not in rules)
