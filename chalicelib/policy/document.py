"""The document's own keys, section by section: the table that architecture §7 draws as an example.

Options and providers have tables of their own. What later versions will do is refused by name, or, where a document
that has it is of use without it (rules), checked and told in a warning. Nothing is silently not there.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.policy import Mode
from chalicelib.policy.disruption import MAX_DISRUPTION
from chalicelib.policy.options import read_options
from chalicelib.policy.parsers import (
    BOOLEAN,
    DNS_LABEL,
    SECRET,
    UNSET,
    Kind,
    choice,
    duration,
    listed,
    number,
    scalar,
    text,
    whole,
)
from chalicelib.policy.prices import PRICES
from chalicelib.policy.providers import provider_name, read_providers
from chalicelib.policy.report import Path, Report
from chalicelib.policy.schema import Field, Section, nested, read_section
from chalicelib.policy.windows import read_windows
from chalicelib.policy.yaml_marks import Node, Scalar, Sequence

API_VERSION = "outscaler.dev/v1"
KIND = "Cluster"

_PLAIN_NAME = text("a name without spaces", r"[^\s\x00-\x1f\x7f]{1,256}")

METADATA = Section(fields=(
    Field("name", DNS_LABEL, "name", "The cluster's name in every command, route and table.", required=True),
))

KUBERNETES = Section(fields=(
    Field("kubeconfigSecret", SECRET, "kubeconfig_secret",
          "Secret that holds a kubeconfig with a token or a client certificate."),
    Field("kubeconfigFile", text("a file's path"), "kubeconfig_file",
          "Kubeconfig file; for commands and the local emulation."),
    Field("eksCluster", text("an EKS cluster's name", r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"), "eks_cluster",
          "EKS cluster, reached with the function's own AWS identity."),
    Field("inClusterKubeconfigSecret", SECRET, "in_cluster_kubeconfig_secret",
          "What upstream calls in-cluster, which a Lambda function is not: the way to this cluster where none of the "
          "above is given, else to the management cluster of clusterapi (its cloudConfigAuthoritative)."),
    Field("context", _PLAIN_NAME, "context", "Context of the kubeconfig; its current one if not given."),
    Field("region", text("an AWS region", r"[a-z]{2}(-[a-z]+)+-[0-9]", "something like eu-central-2"), "region",
          "AWS region of the EKS cluster; the function's own if not given."),
    Field("allowInsecureTls", BOOLEAN, "allow_insecure_tls",
          "Obey insecure-skip-tls-verify in the kubeconfig; refused otherwise.",
          default="false"),
))

NODE_GROUP = Section(fields=(
    Field("provider", Kind("provider", scalar(provider_name, "a provider's name")), "provider",
          "Which of spec.providers owns the group.", required=True),
    Field("id", text("a node group's id", r"[^\s\x00-\x1f\x7f]{1,512}"), "id",
          "The id the provider knows the group by.", required=True),
    Field("min", whole(), "min", "Never fewer nodes; the provider's own minimum if not given."),
    Field("max", whole(), "max", "Never more nodes; the provider's own maximum if not given."),
    Field("priority", whole(-(2**31)), "priority",
          "For the priority expander, where the cluster has no ConfigMap cluster-autoscaler-priority-expander: "
          "the highest wins.", default="0"),
))

RULE = Section(fields=(
    Field("name", _PLAIN_NAME, "name", "The rule's name.", required=True, example="name: NAME"),
    Field("groups", listed(_PLAIN_NAME), "groups", "Ids of the groups it is for."),
    Field("cron", text("five fields of cron", r"\s*\S+(\s+\S+){4}\s*", 'it like "47 20 * * *"'), "cron",
          "When: minute, hour, day of the month, month, day of the week."),
    Field("timeZone", text("a time zone", r"[A-Za-z][A-Za-z0-9_+/-]{0,63}", "it like Europe/Zurich"), "time_zone",
          "Whose clock cron means."),
    Field("metric", _PLAIN_NAME, "metric", "What is measured, such as cpu."),
    Field("above", number(0.0, 1e9, "70"), "above", "The measure from which the rule holds."),
    Field("add", text("a number of nodes or auto", r"auto|-?(0|[1-9][0-9]{0,8})", "a whole number, or auto"), "add",
          "How many nodes."),
))

WEBHOOK = Section(fields=(
    Field("secret", SECRET, "secret", "Secret that senders sign or authenticate with.", required=True),
    Field("reasons", listed(text("an Event's reason", r"[A-Za-z][A-Za-z0-9]{0,127}",
                                 "something like FailedScheduling")), "reasons",
          "Event reasons that wake the cluster up, instead of the built-in list."),
    Field("debounce", duration(0.0, 60.0), "debounce", "Further events within this time cause no further reconcile.",
          default="2s"),
))

_LATER = "is not available in this version"


def _read_groups(node: Node, path: Path, report: Report) -> Any:
    """A tuple of entries as attribute -> value; what was wrong in one is absent from it, already told."""
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Sequence):
        report.problem(path, "is not a list",
                       "write one group per line, as - {provider: NAME, id: ID, min: 1, max: 10}")
        return UNSET
    return tuple(read_section(NODE_GROUP, item, (*path, index), report) or {} for index, item in enumerate(node.items))


def _read_rules(node: Node, path: Path, report: Report) -> Any:
    """Their names; nothing else of them is used yet, but what is wrong with them is told while somebody looks."""
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Sequence):
        report.problem(path, "is not a list",
                       'write one rule per line, as - {name: evening, groups: [ID], cron: "47 20 * * *", add: 3}')
        return UNSET
    if node.items:
        report.warn(path, "rules are not in force in this version")
    read = (read_section(RULE, item, (*path, index), report) or {} for index, item in enumerate(node.items))
    return tuple(rule.get("name", "") for rule in read)


SPEC = Section(
    fields=(
        Field("mode", choice(tuple(mode.value for mode in Mode), Mode, "off, shadow or active"), "mode",
              "off: nothing happens. shadow: plan and explain, touch nothing. active: act.", default="shadow"),
        Field("scanInterval", duration(5.0, 3600.0), "scan_interval",
              "How often the cluster is looked at, from 5s to 1h; below one minute by delayed messages.", default="1m"),
        Field("kubernetes", nested(KUBERNETES), "kubernetes", "How to reach the cluster.", required=True,
              example="kubernetes: {kubeconfigSecret: NAME}"),
        Field("providers", Kind("mapping", read_providers), "providers",
              "Providers of its node groups, each with its settings.",
              required=True, example="providers: {clusterapi: {}}"),
        Field("nodeGroups", Kind("list of groups", _read_groups), "node_groups",
              "Bounds and priorities for groups, where the provider's own are not wanted."),
        Field("options", Kind("options", read_options), "options", "Upstream's flags, in lowerCamelCase."),
        Field("prices", nested(PRICES), "prices",
              "What machines cost per hour, for the expanders price and least-cost."),
        Field("maxDisruption", nested(MAX_DISRUPTION), "max_disruption",
              "The brake: the most that removals may take; no limit if not given."),
        Field("maintenanceWindows", Kind("list of windows", read_windows), "maintenance_windows",
              "When nodes may be removed; always if not given."),
        Field("rules", Kind("list of rules", _read_rules), "rules",
              "Cron and metric rules; checked, not in force in this version."),
        Field("webhook", nested(WEBHOOK), "webhook", "Who may wake the cluster up; nobody if not given."),
    ),
    refused={
        "schedules": (_LATER, "take spec.schedules out: schedules come later"),
        "headroom": (_LATER, "take spec.headroom out: reserved capacity comes later"),
    },
)

ROOT = Section(
    fields=(
        Field("apiVersion", choice((API_VERSION,)), "api_version", f"Always {API_VERSION}.", required=True,
              example=f"apiVersion: {API_VERSION}"),
        Field("kind", choice((KIND,)), "kind", f"Always {KIND}.", required=True, example=f"kind: {KIND}"),
        Field("metadata", nested(METADATA), "metadata", "The cluster's name.", required=True,
              example="metadata: {name: NAME}"),
        Field("spec", nested(SPEC), "spec", "Everything else.", required=True,
              example="spec with kubernetes and providers"),
    ),
    refused={field.key: ("belongs under spec", f"indent it, as spec.{field.key}") for field in SPEC.fields},
)
