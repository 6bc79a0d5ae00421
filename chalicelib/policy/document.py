"""The document's own keys, section by section, and the JSON schema of the whole.

Options, providers and the sections of spec have tables of their own. Every key is
either accepted or reported.
"""

from __future__ import annotations

from typing import Any

from chalicelib.policy.options import options_form, read_options
from chalicelib.policy.providers import PROVIDERS, provider_name, providers_form, read_providers
from chalicelib.policy.schema import Field, listed_sections, nested, section, section_form
from chalicelib.policy.sections import (
    HEADROOMS,
    MAX_DISRUPTION,
    NOTIFICATIONS,
    PRICES,
    RULES,
    SCALE_UP,
    SCHEDULES,
    WINDOWS,
)
from chalicelib.policy.settings.cluster_policy import ClusterReading, Metrics, Mode
from chalicelib.policy.settings.consolidation import CONSOLIDATION
from chalicelib.policy.settings.disruption_budgets import DISRUPTION_BUDGETS
from chalicelib.policy.settings.node_lifecycle import NODE_LIFECYCLE
from chalicelib.policy.settings.spot import SPOT
from chalicelib.policy.value_types import (
    BOOLEAN,
    DNS_LABEL,
    FILE,
    PLAIN_NAME,
    SECRET,
    ValueType,
    choice,
    duration,
    listed,
    scalar,
    text,
    whole,
)

API_VERSION = "outscaler.dev/v1"
KIND = "Cluster"

METADATA = section(
    Field("name", DNS_LABEL, "The cluster's name in every command, route and table.", required=True)
)

KUBERNETES = section(
    Field(
        "kubeconfigSecret",
        SECRET,
        "Secret that holds a kubeconfig with a token or a client certificate.",
    ),
    Field("kubeconfigFile", FILE, "Kubeconfig file; for commands on a workstation only."),
    Field(
        "eksCluster",
        text("an EKS cluster's name", r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"),
        "EKS cluster, reached with the function's own AWS identity.",
    ),
    Field(
        "inClusterKubeconfigSecret",
        SECRET,
        "What upstream calls in-cluster, which does not exist for a Lambda function: kubeconfig of "
        "this "
        "cluster if none of the above is given, otherwise of clusterapi's management cluster (see "
        "its "
        "cloudConfigAuthoritative).",
    ),
    Field("context", PLAIN_NAME, "Context of the kubeconfig; its current one if not given."),
    Field(
        "region",
        text("an AWS region", r"[a-z]{2}(-[a-z]+)+-[0-9]", "something like eu-central-2"),
        "AWS region of the EKS cluster; the function's own if not given.",
    ),
    Field(
        "watcherSecret",
        SECRET,
        "Secret with which outscaler-watcher seals what it reads in the cluster; passes then use "
        "what it posts. "
        "Its name continues the use kubeconfig, such as PREFIX/NAME/kubeconfig-watcher.",
    ),
    Field(
        "allowInsecureTls",
        BOOLEAN,
        "Obey insecure-skip-tls-verify in the kubeconfig; refused otherwise.",
        written="false",
    ),
)

NODE_GROUP = section(
    Field(
        "provider",
        scalar(
            "provider", provider_name, "a provider's name", form=lambda: {"enum": list(PROVIDERS)}
        ),
        "Which of spec.providers owns the group.",
        required=True,
    ),
    Field(
        "id",
        text("a node group's id", r"[^\s\x00-\x1f\x7f]{1,512}"),
        "The id the provider knows the group by.",
        required=True,
    ),
    Field("min", whole(), "Never fewer nodes; the provider's own minimum if not given."),
    Field("max", whole(), "Never more nodes; the provider's own maximum if not given."),
    Field(
        "priority",
        whole(-(2**31)),
        "For the priority expander, if the cluster has no ConfigMap "
        "cluster-autoscaler-priority-expander: the "
        "highest is chosen.",
        written="0",
    ),
)

WEBHOOK = section(
    Field("secret", SECRET, "Secret that senders sign or authenticate with.", required=True),
    Field(
        "reasons",
        listed(
            text(
                "an Event's reason",
                r"[A-Za-z][A-Za-z0-9:._-]{0,127}",
                "something like FailedScheduling",
            )
        ),
        "Event reasons that request a pass, instead of the built-in list.",
    ),
    Field(
        "debounce",
        duration(0.0, 60.0),
        "Further events within this time cause no further reconcile; less than 1s counts as 1s.",
        written="2s",
    ),
)

NODE_GROUPS = listed_sections(
    NODE_GROUP, "group", 10_000, "{provider: NAME, id: ID, min: 1, max: 10}"
)

SPEC = section(
    Field(
        "mode",
        choice(tuple(mode.value for mode in Mode), Mode, "off, shadow or active"),
        "off: nothing happens. shadow: plan and explain, touch nothing. active: act.",
        written="shadow",
    ),
    Field(
        "scanInterval",
        duration(5.0, 3600.0),
        "Interval between passes, from 5s to 1h; below one minute by delayed messages.",
        written="1m",
    ),
    Field(
        "kubernetes",
        nested(KUBERNETES),
        "How to reach the cluster.",
        required=True,
        example="kubernetes: {kubeconfigSecret: NAME}",
    ),
    Field(
        "providers",
        ValueType("mapping", read_providers, form=providers_form),
        "Providers of its node groups, each with its settings.",
        required=True,
        example="providers: {clusterapi: {}}",
    ),
    Field(
        "nodeGroups",
        NODE_GROUPS,
        "Bounds and priorities for groups, where the provider's own are not wanted.",
    ),
    Field(
        "options",
        ValueType("options", read_options, form=options_form),
        "Upstream's flags, in lowerCamelCase.",
    ),
    Field(
        "prices",
        nested(PRICES),
        (
            "What machines cost per hour, for consolidation and for the expanders price and "
            "least-cost."
        ),
    ),
    Field(
        "maxDisruption",
        nested(MAX_DISRUPTION),
        "The circuit breaker: limits of removals; none if not given.",
    ),
    Field(
        "consolidation",
        CONSOLIDATION,
        "Whether needed nodes go, too, where their pods fit a cheaper place; off.",
    ),
    Field(
        "disruptionBudgets",
        DISRUPTION_BUDGETS,
        (
            "Most nodes of a pool that are on their way out at once, by reason and time; one of "
            "10% if not given."
        ),
    ),
    Field(
        "nodeLifecycle",
        NODE_LIFECYCLE,
        "What happens to nodes that are old, defined otherwise now, or sick; nothing if not given.",
    ),
    Field(
        "spot",
        SPOT,
        "Nodes that their vendor may take back; interruptions are only reported if not given.",
    ),
    Field("maintenanceWindows", WINDOWS, "When nodes may be removed; always if not given."),
    Field("scaleUp", nested(SCALE_UP), "What may make groups grow."),
    Field("rules", RULES, "Cron and metric rules that add nodes."),
    Field(
        "schedules",
        SCHEDULES,
        "Windows of a clock in which bounds, headroom or the mode are others.",
    ),
    Field("headroom", HEADROOMS, "Spare capacity that is kept free."),
    Field(
        "webhook",
        nested(WEBHOOK),
        "Authentication of events that request a pass; none are accepted if not given.",
    ),
    Field(
        "notifications",
        nested(NOTIFICATIONS),
        "Where messages about conditions of the cluster go; none are sent if not given.",
    ),
    Field(
        "recordDecisions",
        BOOLEAN,
        "Whether what each decision with changes was made from is recorded, for outscaler replay.",
        written="false",
    ),
    Field(
        "reading",
        choice(
            tuple(word.value for word in ClusterReading), ClusterReading, "changes, full or verify"
        ),
        "What a pass reads. changes: what has changed since an earlier pass of the same process, "
        "everything where "
        "there was none. full: everything. verify: changes, compared with full lists of the same "
        "versions; a "
        "difference is an error in the log.",
        written="changes",
    ),
    Field(
        "metrics",
        choice(tuple(word.value for word in Metrics), Metrics, "off, summary or full"),
        "What is written for CloudWatch, which charges for each series. off: nothing. summary: at "
        "most six "
        "series, each only while it is not zero. full: every series. GET /metrics has every series "
        "in any case.",
        written="summary",
    ),
)

ROOT = section(
    Field(
        "apiVersion",
        choice((API_VERSION,)),
        f"Always {API_VERSION}.",
        required=True,
        example=f"apiVersion: {API_VERSION}",
    ),
    Field("kind", choice((KIND,)), f"Always {KIND}.", required=True, example=f"kind: {KIND}"),
    Field(
        "metadata",
        nested(METADATA),
        "The cluster's name.",
        required=True,
        example="metadata: {name: NAME}",
    ),
    Field(
        "spec",
        nested(SPEC),
        "Everything else.",
        required=True,
        example="spec with kubernetes and providers",
    ),
    refused={
        field.key: ("belongs under spec", f"indent it, as spec.{field.key}")
        for field in SPEC.fields
    },
)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a document, for editors that complete and check
    YAML while an author types.

    It may accept a document that `outscaler validate` refuses, because rules across keys are not in
    it; it refuses no document that validate accepts.
    """
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "title": "Outscaler policy", **section_form(ROOT)}
