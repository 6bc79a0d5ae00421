"""Parsing of a valid document, and its warnings."""

from __future__ import annotations

import json

from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.plan.scale_up.expanders import EXPANDERS, LEAST_COST, RANDOM
from chalicelib.policy.load import digest, load
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.settings.cluster_options import AVAILABLE_EXPANDERS, Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.vendors.settings import keys_of
from chalicelib.providers.clusterapi.settings import CapiSettings, read_settings, to_management
from tests.cases import each_row
from tests.unit.policy.policy_documents import (
    ARCHITECTURE,
    GOOD,
    HEAD,
    with_access,
    with_groups,
    with_options,
    with_providers,
    with_spec,
)


def read(text: str) -> Policy:
    return load(text, place="policy.yaml")[0]


def warnings(text: str) -> tuple[str, ...]:
    return load(text, place="policy.yaml")[1]


def test_policy_example_is_parsed_completely() -> None:
    assert read(ARCHITECTURE) == Policy(
        name="prod-geneva",
        mode=Mode.ACTIVE,
        scan_interval=20.0,
        kubernetes=KubernetesAccess(kubeconfig_secret="outscaler/prod-geneva/kubeconfig"),
        providers={
            "exoscale": {"zone": "ch-gva-2", "credentialsSecret": "outscaler/prod-geneva/exoscale"}
        },
        node_groups=(GroupPolicy(provider="exoscale", id="workers", min=1, max=20, priority=10),),
        options=Options(expander=("priority", "least-waste"), max_nodes_total=200),
        rules=(
            Rule("evening", ("workers",), cron="47 20 * * *", time_zone="Europe/Zurich", add=3),
            Rule("busy", ("workers",), metric=Metric.CPU, above=70),
        ),
        webhook=Webhook(secret="outscaler/prod-geneva/webhook"),
    )


def test_policy_example_causes_no_warning() -> None:
    assert warnings(ARCHITECTURE) == ()


@each_row(
    "chain",
    [
        "priority",
        "[price, random]",
        "[least-cost, most-pods, least-nodes, price, priority, least-waste, random]",
    ],
)
def test_policy_every_chain_of_known_expanders_is_in_force(chain: str) -> None:
    text = with_options(f"expander: {chain}") + "  prices: {cpu: 0.03, memory: 0.004}\n"
    assert warnings(text) == ()
    assert read(text).options.expander == tuple(chain.strip("[]").split(", "))


def test_policy_expanders_equal_those_of_the_planner() -> None:
    assert {*EXPANDERS, RANDOM, LEAST_COST} == set(AVAILABLE_EXPANDERS)


@each_row(
    ("lines", "prices"),
    [
        (
            (
                "prices: {instanceTypes: {m5.large: 0.096}, cpu: 0.03, memory: 0.004, gpu: 0.9, "
                "node: 0.01}"
            ),
            NodePrices(
                instance_types={"m5.large": 0.096}, cpu=0.03, memory=0.004, gpu=0.9, node=0.01
            ),
        ),
        (
            "prices:\n  instanceTypes:\n    Standard_D4s_v5: 0.192\n    e2-standard-4: 0",
            NodePrices(instance_types={"Standard_D4s_v5": 0.192, "e2-standard-4": 0.0}),
        ),
        ("prices: {cpu: 0, memory: 12}", NodePrices(cpu=0.0, memory=12.0)),
        ("scanInterval: 1m", None),
    ],
)
def test_policy_prices_are_parsed(lines: str, prices: NodePrices | None) -> None:
    policy, reported = load(with_spec(lines), place="policy.yaml")
    assert policy.prices == prices
    assert reported == ()


@each_row(
    ("lines", "expected"),
    [
        (
            "maxDisruption: {nodesPerHour: 20, podsPerHour: 500, share: 25%}",
            MaxDisruption(20, 500, 0.25),
        ),
        ("maxDisruption: {share: 0.25}", MaxDisruption(share=0.25)),
        ("maxDisruption: {share: 33.3 %}", MaxDisruption(share=0.333)),
        ("maxDisruption: {share: 100%}", MaxDisruption(share=1.0)),
        ("maxDisruption:", MaxDisruption()),
        ("scanInterval: 1m", MaxDisruption()),
    ],
)
def test_policy_max_disruption_is_parsed(lines: str, expected: MaxDisruption) -> None:
    policy, reported = load(with_spec(lines), place="policy.yaml")
    assert (policy.max_disruption, reported) == (expected, ())


def test_policy_maintenance_windows_are_parsed() -> None:
    policy, reported = load(
        with_spec(
            'maintenanceWindows:\n  - {name: nights, cron: "0  22 * * MON-FRI", '
            "timeZone: Europe/Zurich, duration: 6h}\n"
            '  - {cron: "0 0 24 12 *", duration: 72h, removals: forbidden}'
        ),
        place="policy.yaml",
    )
    assert policy.maintenance_windows == (
        Window("0 22 * * MON-FRI", 21600.0, time_zone="Europe/Zurich", name="nights"),
        Window("0 0 24 12 *", 259200.0, removals=False),
    )
    assert reported == ()


@each_row("windows", ["maintenanceWindows:", "maintenanceWindows: []"])
def test_policy_without_maintenance_windows_has_none(windows: str) -> None:
    assert read(with_spec(windows)).maintenance_windows == ()


def test_policy_maintenance_windows_that_leave_no_time_are_warned_about() -> None:
    (reported,) = warnings(
        with_spec(
            'maintenanceWindows:\n  - {cron: "0 9 * * 1-5", duration: 1h}\n'
            '  - {cron: "0 8 * * *", duration: 10h, removals: forbidden}'
        )
    )
    assert reported.startswith("policy.yaml:9: spec.maintenanceWindows: no removal is ever allowed")


@each_row("key", ["rules", "schedules", "headroom", "maintenanceWindows", "scaleUp"])
@each_row("value", ["", " []"])
def test_policy_empty_section_causes_no_warning(key: str, value: str) -> None:
    text = with_spec(f"{key}:{value if key != 'scaleUp' else value.replace('[]', '{}')}")
    assert warnings(text) == ()
    assert read(text) == read(GOOD)


def test_policy_short_document_has_the_defaults_and_no_warning() -> None:
    policy, reported = load(GOOD, place="policy.yaml")
    assert policy.options == Options()
    assert policy.webhook == Webhook()
    assert policy.scan_interval == 60.0
    assert reported == ()


def test_policy_without_a_mode_is_shadow_and_says_so() -> None:
    text = GOOD.replace("  mode: active\n", "")
    assert read(text).mode is Mode.SHADOW
    (reported,) = warnings(text)
    assert reported == (
        "policy.yaml:4: spec: mode is not given, so it is shadow: planned and explained, "
        "nothing is changed"
    )


def test_policy_json_is_accepted_as_yaml() -> None:
    document = {
        "apiVersion": "outscaler.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": "a"},
        "spec": {
            "mode": "off",
            "kubernetes": {"eksCluster": "prod"},
            "providers": {"clusterapi": {}},
            "options": {
                "maxNodesTotal": 7,
                "scaleDownEnabled": False,
                "scaleDownUtilizationThreshold": 0.5,
            },
        },
    }
    for indent in (None, 2, "\t"):
        policy = read(json.dumps(document, indent=indent))
        assert (policy.mode, policy.options.max_nodes_total, policy.options.scale_down_enabled) == (
            Mode.OFF,
            7,
            False,
        )


def test_policy_yaml_implicit_types_are_read_safely() -> None:
    policy = read(
        "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: no}\n"
        "spec:\n  mode: off\n  kubernetes: {eksCluster: on}\n"
        "  providers: {alicloud: {region: 1-2, credentialsSecret: yes, observeSecret: 012, "
        "oidcTokenFile: 12:30, "
        "sessionName: 2026-11-21, oidcTokenSecret: 1_000, ramRole: 0x1F}}\n"
        "  options: {coresTotal: 12:30}\n"
    )
    assert policy.name == "no"
    assert policy.mode is Mode.OFF
    assert policy.kubernetes.eks_cluster == "on"
    assert policy.providers["alicloud"] == {
        "region": "1-2",
        "credentialsSecret": "yes",
        "observeSecret": "012",
        "oidcTokenFile": "12:30",
        "sessionName": "2026-11-21",
        "oidcTokenSecret": "1_000",
        "ramRole": "0x1F",
    }
    assert policy.options.cores_total == (12, 30)


def test_policy_yaml_anchors_and_aliases_are_expanded() -> None:
    text = with_groups(
        "&one {provider: clusterapi, id: MachineDeployment/a/b, max: &most 3}",
        "{provider: clusterapi, id: MachineDeployment/a/c, max: *most}",
    )
    assert [group.max for group in read(text).node_groups] == [3, 3]


@each_row(
    ("providers", "settings"),
    [
        ("{clusterapi: }", {}),
        ("{clusterapi: {labels: 'team=web, tier=front'}}", {"labels": "team=web,tier=front"}),
        (
            "{clusterapi: {labels: {team: web, example.com/on: yes}}}",
            {"labels": "team=web,example.com/on=yes"},
        ),
        (
            "{clusterapi: {autoDiscovery: 'clusterapi:namespace=a,team=web'}}",
            {"autoDiscovery": "clusterapi:namespace=a,team=web"},
        ),
        (
            "{clusterapi: {autoDiscovery: ['clusterapi:', 'clusterapi:clusterName=b']}}",
            {"autoDiscovery": "clusterapi:\nclusterapi:clusterName=b"},
        ),
        (
            (
                "{clusterapi: {group: capi.example.com, version: v1beta2, scaleZeroDefaultArch: "
                "arm64}}"
            ),
            {"group": "capi.example.com", "version": "v1beta2", "scaleZeroDefaultArch": "arm64"},
        ),
    ],
)
def test_policy_cluster_api_settings_are_passed_as_text(
    providers: str, settings: dict[str, str]
) -> None:
    assert read(with_providers(providers)).providers == {"clusterapi": settings}


@each_row(
    ("access", "expected"),
    [
        (
            "{kubeconfigFile: ./kubeconfig, context: a@b, allowInsecureTls: true}",
            KubernetesAccess(
                kubeconfig_file="./kubeconfig", context="a@b", allow_insecure_tls=True
            ),
        ),
        (
            "{eksCluster: prod, region: eu-central-2}",
            KubernetesAccess(eks_cluster="prod", region="eu-central-2"),
        ),
        (
            (
                "{kubeconfigSecret: 'arn:aws:secretsmanager:eu-central-2:123456789012:secret:a/b-"
                "Q1w2E3'}"
            ),
            KubernetesAccess(
                kubeconfig_secret=(
                    "arn:aws:secretsmanager:eu-central-2:123456789012:secret:a/b-Q1w2E3"
                )
            ),
        ),
    ],
)
def test_policy_each_kind_of_cluster_access_is_parsed(
    access: str, expected: KubernetesAccess
) -> None:
    assert read(with_access(access)).kubernetes == expected


def test_policy_webhook_is_parsed() -> None:
    policy = read(
        with_spec(
            "webhook: {secret: a/b, reasons: [FailedScheduling, NodeNotReady], debounce: 500ms}"
        )
    )
    assert policy.webhook == Webhook(
        secret="a/b", reasons=("FailedScheduling", "NodeNotReady"), debounce=0.5
    )


def test_policy_group_id_that_cannot_match_is_warned_about() -> None:
    (reported,) = warnings(with_groups("{provider: clusterapi, id: workers}"))
    assert reported == (
        "policy.yaml:10: spec.nodeGroups[0].id: no group of clusterapi is named like this; "
        "its ids look like MachineDeployment/default/workers"
    )


def test_policy_validation_accepts_what_the_provider_accepts() -> None:
    assert {field.key for field in vendor_section(PROVIDERS["clusterapi"]).fields} == keys_of(
        CapiSettings
    )
    settings = read(
        with_providers(
            "{clusterapi: {namespace: a, clusterName: b, labels: {x: y}, "
            "scaleZeroDefaultArch: arm64, version: v1beta2, "
            "reservedCpu: 200m, reservedMemory: 1.5Gi, reservedEphemeralStorage: 1e9, "
            "syncMachineLabels: ['^team', a|b], "
            "kubeconfigSecret: m, context: c, cloudConfigAuthoritative: True, allowPoolShrink: "
            "true, "
            "zoneFromFailureDomain: false, stuckAfter: 5m}}"
        )
    ).providers["clusterapi"]
    taken = read_settings(settings)
    assert (taken.scale_zero_default_arch, taken.version, taken.sync_machine_labels) == (
        "arm64",
        "v1beta2",
        ("^team", "a|b"),
    )
    assert (taken.management.secret, taken.management.context, taken.management.authoritative) == (
        "m",
        "c",
        True,
    )
    assert (taken.allow_pool_shrink, taken.zone_from_failure_domain, taken.stuck_after) == (
        True,
        False,
        300.0,
    )
    assert taken.reserve == {"cpu": 200, "memory": 3 * 2**29, "ephemeral-storage": 10**9}
    specs = read(
        with_providers("{clusterapi: {autoDiscovery: ['clusterapi:', 'clusterapi:team=web']}}")
    )
    assert len(read_settings(specs.providers["clusterapi"]).specs) == 2


@each_row(
    ("access", "providers"),
    [
        ("{inClusterKubeconfigSecret: i}", "{}"),
        (
            "{inClusterKubeconfigSecret: i, context: c, allowInsecureTls: true}",
            "{cloudConfigAuthoritative: true}",
        ),
        ("{inClusterKubeconfigSecret: i}", "{kubeconfigSecret: m, context: c}"),
        ("{kubeconfigSecret: k, inClusterKubeconfigSecret: i}", "{cloudConfigAuthoritative: true}"),
        ("{kubeconfigSecret: k}", "{kubeconfigSecret: m}"),
        ("{kubeconfigSecret: k}", "{kubeconfigSecret: m, cloudConfigAuthoritative: true}"),
        ("{kubeconfigSecret: k}", "{cloudConfigAuthoritative: false}"),
        ("{eksCluster: k, allowInsecureTls: true}", "{kubeconfigSecret: m}"),
    ],
)
def test_policy_access_to_both_clusters_is_accepted_by_cluster_api(
    access: str, providers: str
) -> None:
    policy = read(
        f"{HEAD}spec:\n  mode: shadow\n  kubernetes: {access}\n  providers: {{clusterapi: "
        f"{providers}}}\n"
    )
    to_management(read_settings(policy.providers["clusterapi"]).management, policy.kubernetes)


def test_policy_digest_covers_the_text_without_its_line_endings() -> None:
    assert digest(GOOD) == digest(GOOD.replace("\n", "\r\n"))
    assert digest(GOOD) != digest(GOOD + "# a comment\n")
