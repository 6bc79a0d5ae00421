"""Invalid documents are refused at the right position with the expected form, and all errors are reported at once."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import InputErrors
from chalicelib.policy.load import load
from tests.cases import each_row
from tests.unit.policy.policy_documents import (
    GOOD,
    HEAD,
    with_access,
    with_groups,
    with_options,
    with_providers,
    with_spec,
)

SPEC = "spec:\n  kubernetes: {eksCluster: a}\n  providers: {clusterapi: {}}\n"


def refusals(text: str) -> list[str]:
    with pytest.raises(InputErrors) as refused:
        load(text, place="p.yaml")
    return [str(problem) for problem in refused.value.problems]


# text, position, part of the problem, part of the remedy
Case = tuple[str, str, str, str]

THE_FILE: list[Case] = [
    ("", "p.yaml", "is empty", "start with apiVersion"),
    ("# only a comment\n", "p.yaml", "is empty", "start with apiVersion"),
    ("just words", "p.yaml:1", "is 'just words'", "write a mapping"),
    ("- a\n- b\n", "p.yaml:1", "is a list", "write a mapping"),
    ("a: [1\nb: 2\n", "p.yaml:2", "not YAML, column 2", "begins in line 1"),
    ("a: 'never ends\n", "p.yaml:1", "quoted scalar", "the line before"),
    ("a:\n\t- b\n", "p.yaml:2", "cannot start any token", "the line before"),
    ("a: b: c\n", "p.yaml:1", "mapping values are not allowed", "the line before"),
    (GOOD + "---\n" + GOOD, "p.yaml:9", "a second document begins", "one cluster per file"),
    ("a: \x07\n", "p.yaml", "#x0007 is not allowed", "UTF-8"),
    ("a: \ud800\n", "p.yaml", "surrogate", "UTF-8"),
    ("a: !!int 5\n", "p.yaml:1", "tags are not used", "take the word that begins with !"),
    ("a: !secret b\n", "p.yaml:1", "tags are not used", "take the word that begins with !"),
    ("a: *b\n", "p.yaml:1", "no anchor before it", "write &b first"),
    ("a: &b [*b]\n", "p.yaml:1", "inside its own anchor", "write the values out"),
    ("? [a]\n: b\n", "p.yaml:1", "used as a key", "a name before the colon"),
    ("[" * 200_000, "p.yaml:1", "nested deeper than 20", "no more than six"),
    ("x" * 300_000, "p.yaml", "300000 bytes is too large", "under 262144 bytes"),
]

THE_ENVELOPE: list[Case] = [
    (
        GOOD.replace("apiVersion: outscaler.dev/v1\n", ""),
        "p.yaml:1: apiVersion",
        "is missing",
        "apiVersion: outscaler.dev/v1",
    ),
    (GOOD.replace("dev/v1", "dev/v2"), "p.yaml:1: apiVersion", "'outscaler.dev/v2' is unknown", "outscaler.dev/v1"),
    (GOOD.replace("kind: Cluster", "kind: Clutser"), "p.yaml:2: kind", "'Clutser' is unknown", "did you mean Cluster?"),
    (GOOD.replace("kind: Cluster", "kind: [Cluster]"), "p.yaml:2: kind", "is a list", "write Cluster"),
    (GOOD.replace("metadata: {name: prod-geneva}\n", ""), "p.yaml:1: metadata", "is missing", "metadata: {name: NAME}"),
    (GOOD.replace("{name: prod-geneva}", "{}"), "p.yaml:3: metadata.name", "is missing", "name"),
    (
        GOOD.replace("{name: prod-geneva}", "{name: Prod_Geneva}"),
        "p.yaml:3: metadata.name",
        "'Prod_Geneva' is not a name",
        "something like prod-geneva",
    ),
    (
        GOOD.replace("{name: prod-geneva}", f"{{name: {'a' * 64}}}"),
        "p.yaml:3: metadata.name",
        "at most 63",
        "prod-geneva",
    ),
    (GOOD.replace("{name: prod-geneva}", "{name: ~}"), "p.yaml:3: metadata.name", "has no value", "take the line out"),
    (
        GOOD.replace("{name: prod-geneva}", "{name: a, lables: {}}"),
        "p.yaml:3: metadata.lables",
        "is unknown",
        "known here: name",
    ),
    (HEAD, "p.yaml:1: spec", "is missing", "spec with kubernetes and providers"),
    (HEAD + "spec:\n", "p.yaml:4: spec.kubernetes", "is missing", "kubernetes: {kubeconfigSecret: NAME}"),
    (HEAD + "spec: []\n", "p.yaml:4: spec", "is a list", "write a mapping"),
    (GOOD + "spce: {}\n", "p.yaml:9: spce", "is unknown", "did you mean spec?"),
    (GOOD + "nodeGroups: []\n", "p.yaml:9: nodeGroups", "belongs under spec", "indent it, as spec.nodeGroups"),
    (GOOD + "kind: Cluster\n", "p.yaml:9: kind", "already given in line 2", "keep one of the two"),
    (with_spec("<<: {mode: off}"), 'p.yaml:9: spec["<<"]'.replace('"', "'"), "is unknown", "merge keys are not used"),
]

THE_SPEC: list[Case] = [
    (with_spec("mode: active"), "p.yaml:9: spec.mode", "already given in line 5", "keep one"),
    (GOOD.replace("active", "acitve"), "p.yaml:5: spec.mode", "'acitve' is unknown", "did you mean active?"),
    (GOOD.replace("active", "on"), "p.yaml:5: spec.mode", "'on' is unknown", "off, shadow or active"),
    (GOOD.replace("active", "false"), "p.yaml:5: spec.mode", "'false' is unknown", "off, shadow or active"),
    (GOOD.replace("active", "Active"), "p.yaml:5: spec.mode", "'Active' is unknown", "did you mean active?"),
    (with_spec("scanInterval: 20"), "p.yaml:9: spec.scanInterval", "'20' is not a duration", "30s, 10m, 1h30m"),
    (with_spec("scanInterval: 1s"), "p.yaml:9: spec.scanInterval", "out of range", "from 5s to 1h"),
    (with_spec("scanInterval: 2h"), "p.yaml:9: spec.scanInterval", "out of range", "from 5s to 1h"),
    (with_spec("scanInterval: -10s"), "p.yaml:9: spec.scanInterval", "is negative", "from 5s to 1h"),
    (with_spec("scanInterval: 12:30"), "p.yaml:9: spec.scanInterval", "'12:30' is not a duration", "as Go does"),
    (with_spec("scanInterval: {seconds: 5}"), "p.yaml:9: spec.scanInterval", "is a mapping", "write a duration"),
    (with_spec("scaninterval: 20s"), "p.yaml:9: spec.scaninterval", "is unknown", "did you mean scanInterval?"),
    (with_spec("webhook: {}"), "p.yaml:9: spec.webhook.secret", "is missing", "secret"),
    (
        with_spec("webhook: {secret: a, debounce: 5m}"),
        "p.yaml:9: spec.webhook.debounce",
        "out of range",
        "from 0s to 1m",
    ),
    (
        with_spec("webhook: {secret: a, reasons: [failed scheduling]}"),
        "p.yaml:9: spec.webhook.reasons[0]",
        "is not an Event's reason",
        "FailedScheduling",
    ),
]

THE_ACCESS: list[Case] = [
    (HEAD + "spec: {providers: {clusterapi: {}}}\n", "p.yaml:4: spec.kubernetes", "is missing", "kubeconfigSecret"),
    (
        with_access("{}"),
        "p.yaml:5: spec.kubernetes",
        "does not say how",
        "kubeconfigSecret, kubeconfigFile, eksCluster",
    ),
    (
        with_access("{kubeconfigSecret: a, eksCluster: b}"),
        "p.yaml:5: spec.kubernetes.eksCluster",
        "another way",
        "keep one of",
    ),
    (
        with_access("{kubeconfigFile: a, kubeconfigSecret: b}"),
        "p.yaml:5: spec.kubernetes.kubeconfigFile",
        "another way",
        "keep one of",
    ),
    (
        with_access("{kubeconfigSecret: 'apiVersion: v1, clusters: []'}"),
        "p.yaml:5: spec.kubernetes.kubeconfigSecret",
        "is not the name of a secret",
        "not the secret itself",
    ),
    (
        with_access("{eksCluster: a, context: b}"),
        "p.yaml:5: spec.kubernetes.context",
        "belongs to a kubeconfig",
        "take context out",
    ),
    (
        with_access("{inClusterKubeconfigSecret: a, region: eu-central-2}"),
        "p.yaml:5: spec.kubernetes.region",
        "belongs to eksCluster",
        "eksCluster",
    ),
    (
        with_access("{inClusterKubeconfigSecret: 'apiVersion: v1, clusters: []'}"),
        "p.yaml:5: spec.kubernetes.inClusterKubeconfigSecret",
        "is not the name of a secret",
        "not the secret itself",
    ),
    (
        with_access("{kubeconfigSecret: a, region: eu-central-2}"),
        "p.yaml:5: spec.kubernetes.region",
        "belongs to eksCluster",
        "take region out",
    ),
    (
        with_access("{eksCluster: a, region: Frankfurt}"),
        "p.yaml:5: spec.kubernetes.region",
        "'Frankfurt' is not an AWS region",
        "eu-central-2",
    ),
    (
        with_access("{kubeconfigSecret: a, token: b}"),
        "p.yaml:5: spec.kubernetes.token",
        "is unknown",
        "stay in Secrets Manager",
    ),
    (
        with_access("{kubeConfigSecret: a}"),
        "p.yaml:5: spec.kubernetes.kubeConfigSecret",
        "is unknown",
        "did you mean kubeconfigSecret?",
    ),
    (
        with_access("{kubeconfigSecret: a, allowInsecureTls: yes}"),
        "p.yaml:5: spec.kubernetes.allowInsecureTls",
        "'yes' is not true or false",
        "write true or false",
    ),
    (with_access("kubeconfig"), "p.yaml:5: spec.kubernetes", "is 'kubeconfig'", "write a mapping"),
]

THE_PROVIDERS: list[Case] = [
    (with_providers("{}"), "p.yaml:5: spec.providers", "names no provider", "alicloud, cherryservers, clusterapi"),
    (with_providers("[clusterapi]"), "p.yaml:5: spec.providers", "is a list", "write a mapping"),
    (
        with_providers("{clusterapis: {}}"),
        "p.yaml:5: spec.providers.clusterapis",
        "is not a provider",
        "did you mean clusterapi?",
    ),
    (with_providers("{aws: {}}"), "p.yaml:5: spec.providers.aws", "is not a provider", "known: alicloud"),
    (
        with_providers("{clusterapi: {namespaces: a}}"),
        "p.yaml:5: spec.providers.clusterapi.namespaces",
        "is unknown",
        "did you mean namespace?",
    ),
    (
        with_providers("{clusterapi: {labels: team}}"),
        "p.yaml:5: spec.providers.clusterapi.labels",
        "'team' is not a label",
        "team=web,tier=front",
    ),
    (
        with_providers("{clusterapi: {autoDiscovery: 'asg:tag=a'}}"),
        "p.yaml:5: spec.providers.clusterapi.autoDiscovery",
        "'asg:tag=a' is not a clusterapi: spec",
        "clusterapi:namespace=default",
    ),
    (
        with_providers("{clusterapi: {autoDiscovery: ['clusterapi:a']}}"),
        "p.yaml:5: spec.providers.clusterapi.autoDiscovery[0]",
        "'a' is not a key=value pair",
        "clusterapi:namespace=default",
    ),
    (
        with_providers("{clusterapi: {scaleZeroDefaultArch: arm}}"),
        "p.yaml:5: spec.providers.clusterapi.scaleZeroDefaultArch",
        "'arm' is unknown",
        "arm64",
    ),
    (
        with_providers("{clusterapi: {version: 1}}"),
        "p.yaml:5: spec.providers.clusterapi.version",
        "'1' is not an API version",
        "v1beta2",
    ),
    (
        with_providers("{clusterapi: {kubeconfigSecret: a, kubeconfigFile: b}}"),
        "p.yaml:5: spec.providers.clusterapi.kubeconfigFile",
        "another way to the management cluster",
        "keep one",
    ),
    (
        with_providers("{clusterapi: {context: a}}"),
        "p.yaml:5: spec.providers.clusterapi.context",
        "belongs to a kubeconfig",
        "kubeconfigSecret",
    ),
    (
        with_providers("{clusterapi: {cloudConfigAuthoritative: true}}"),
        "p.yaml:5: spec.providers.clusterapi.cloudConfigAuthoritative",
        "where the management cluster is",
        "spec.kubernetes.inClusterKubeconfigSecret",
    ),
    (
        with_providers("{clusterapi: {allowPoolShrink: 1}}"),
        "p.yaml:5: spec.providers.clusterapi.allowPoolShrink",
        "is not true or false",
        "write true or false",
    ),
    (
        with_providers("{clusterapi: {stuckAfter: -5m}}"),
        "p.yaml:5: spec.providers.clusterapi.stuckAfter",
        "is negative",
        "duration",
    ),
    (
        with_providers("{clusterapi: {labels: a=b, autoDiscovery: 'clusterapi:'}}"),
        "p.yaml:5: spec.providers.clusterapi.labels",
        "cannot be combined with autoDiscovery",
        "into the specs",
    ),
    (
        with_providers("{clusterapi: {reservedMemory: 1.5Gii}}"),
        "p.yaml:5: spec.providers.clusterapi.reservedMemory",
        "'1.5Gii' is not a Kubernetes quantity",
        "1.5Gi",
    ),
    (
        with_providers("{clusterapi: {reservedCpu: -1}}"),
        "p.yaml:5: spec.providers.clusterapi.reservedCpu",
        "is negative",
        "200m",
    ),
    (
        with_providers("{clusterapi: {syncMachineLabels: ['(']}}"),
        "p.yaml:5: spec.providers.clusterapi.syncMachineLabels[0]",
        "is not a regular expression",
        "correct it",
    ),
    (
        with_providers("{huaweicloud: {region: [a]}}"),
        "p.yaml:5: spec.providers.huaweicloud.region",
        "is a list",
        "write a region",
    ),
]

THE_GROUPS: list[Case] = [
    (
        with_groups("{provider: clusterapi, id: a, min: 3, max: 2}"),
        "p.yaml:10: spec.nodeGroups[0].max",
        "2 is below min 3",
        "write 3 or more",
    ),
    (
        with_groups("{provider: clusterapi, id: a}", "{provider: clusterapi, id: a}"),
        "p.yaml:11: spec.nodeGroups[1].id",
        "a is already nodeGroups[0]",
        "name each group once",
    ),
    (
        with_groups("{provider: exoscale, id: a}"),
        "p.yaml:10: spec.nodeGroups[0].provider",
        "exoscale is not among spec.providers",
        "add exoscale there, or write one of: clusterapi",
    ),
    (
        with_groups("{provider: clusterpai, id: a}"),
        "p.yaml:10: spec.nodeGroups[0].provider",
        "'clusterpai' is not a provider",
        "did you mean clusterapi?",
    ),
    (with_groups("{id: a}"), "p.yaml:10: spec.nodeGroups[0].provider", "is missing", "provider"),
    (with_groups("{provider: clusterapi}"), "p.yaml:10: spec.nodeGroups[0].id", "is missing", "id"),
    (
        with_groups("{provider: clusterapi, id: a, min: -1}"),
        "p.yaml:10: spec.nodeGroups[0].min",
        "-1 is out of range",
        "0 or more",
    ),
    (
        with_groups("{provider: clusterapi, id: a, max: ten}"),
        "p.yaml:10: spec.nodeGroups[0].max",
        "'ten' is not a whole number",
        "in digits",
    ),
    (
        with_groups("{provider: clusterapi, id: a, max: 1.5}"),
        "p.yaml:10: spec.nodeGroups[0].max",
        "'1.5' is not a whole number",
        "digits",
    ),
    (
        with_groups("{provider: clusterapi, id: a, max: 012}"),
        "p.yaml:10: spec.nodeGroups[0].max",
        "'012' is not a whole number",
        "without the leading zero",
    ),
    (
        with_groups("{provider: clusterapi, id: a, max: 99999999999}"),
        "p.yaml:10: spec.nodeGroups[0].max",
        "out of range",
        "0 or more",
    ),
    (
        with_groups("{provider: clusterapi, id: a, mx: 2}"),
        "p.yaml:10: spec.nodeGroups[0].mx",
        "is unknown",
        "did you mean max?",
    ),
    (with_groups("1:10:workers"), "p.yaml:10: spec.nodeGroups[0]", "is '1:10:workers'", "write a mapping"),
    (
        with_spec("nodeGroups: {workers: {max: 2}}"),
        "p.yaml:9: spec.nodeGroups",
        "is not a list",
        "- {provider: NAME, id: ID",
    ),
]

THE_OPTIONS: list[Case] = [
    (
        with_options("scale-down-unneeded-time: 10m"),
        "p.yaml:10: spec.options.scale-down-unneeded-time",
        "command line's spelling",
        "write scaleDownUnneededTime",
    ),
    (
        with_options("--max-nodes-total: 3"),
        "p.yaml:10: spec.options.--max-nodes-total",
        "command line's spelling",
        "write maxNodesTotal",
    ),
    (
        with_options("scan-interval: 10s"),
        "p.yaml:10: spec.options.scan-interval",
        "command line's spelling",
        "write spec.scanInterval",
    ),
    (
        with_options("scaleDownUneededTime: 10m"),
        "p.yaml:10: spec.options.scaleDownUneededTime",
        "is unknown",
        "did you mean scaleDownUnneededTime?",
    ),
    (
        with_options("scanIntervall: 10s"),
        "p.yaml:10: spec.options.scanIntervall",
        "is unknown",
        "did you mean spec.scanInterval?",
    ),
    (
        with_options("blockingSystemPodDisruptionTimeout: 1h"),
        "p.yaml:10: spec.options.blockingSystemPodDisruptionTimeout",
        "is unknown",
        "did you mean blockingSystemPodDistruptionTimeout?",
    ),
    (with_options("wibble: 1"), "p.yaml:10: spec.options.wibble", "is unknown", "docs/policy.md"),
    (with_options("nodes: 1:10:a"), "p.yaml:10: spec.options.nodes", "has its own place", "spec.nodeGroups"),
    (
        with_options("cloudProvider: aws"),
        "p.yaml:10: spec.options.cloudProvider",
        "has its own place",
        "spec.providers",
    ),
    (
        with_options("scaleDownEnabled: yes"),
        "p.yaml:10: spec.options.scaleDownEnabled",
        "'yes' is not true or false",
        "true or false",
    ),
    (
        with_options("scaleDownUnneededTime: 600"),
        "p.yaml:10: spec.options.scaleDownUnneededTime",
        "'600' is not a duration",
        "10m",
    ),
    (
        with_options("scaleDownUnneededTime:"),
        "p.yaml:10: spec.options.scaleDownUnneededTime",
        "has no value",
        "take the line out",
    ),
    (
        with_options("scaleDownUtilizationThreshold: 50"),
        "p.yaml:10: spec.options.scaleDownUtilizationThreshold",
        "out of range",
        "from 0 to 1",
    ),
    (
        with_options("scaleDownUtilizationThreshold: 50%"),
        "p.yaml:10: spec.options.scaleDownUtilizationThreshold",
        "'50%' is not a number",
        "such as 0.5",
    ),
    (with_options("coresTotal: 100"), "p.yaml:10: spec.options.coresTotal", "'100' is not <min>:<max>", "0:320000"),
    (
        with_options("coresTotal: 5:4"),
        "p.yaml:10: spec.options.coresTotal",
        "the minimum 5 is above the maximum 4",
        "0:320000",
    ),
    (with_options("coresTotal: -1:4"), "p.yaml:10: spec.options.coresTotal", "'-1:4' is not <min>:<max>", "0:320000"),
    (
        with_options("memoryTotal: 0:64Gi"),
        "p.yaml:10: spec.options.memoryTotal",
        "'0:64Gi' is not <min>:<max>",
        "in GiB",
    ),
    (with_options("memoryTotal: 0:999999999999"), "p.yaml:10: spec.options.memoryTotal", "out of range", "in GiB"),
    (
        with_options("memoryTotal: {maximum: 4}"),
        "p.yaml:10: spec.options.memoryTotal.maximum",
        "is unknown",
        "min and max",
    ),
    (
        with_options("memoryTotal: {min: 8, max: 4}"),
        "p.yaml:10: spec.options.memoryTotal",
        "minimum 8 is above",
        "in GiB",
    ),
    (
        with_options("gpuTotal: t4:8"),
        "p.yaml:10: spec.options.gpuTotal",
        "'t4:8' is not <type>:<min>:<max>",
        "nvidia-tesla-t4:0:8",
    ),
    (
        with_options("gpuTotal: t4:9:8"),
        "p.yaml:10: spec.options.gpuTotal",
        "the minimum 9 is above the maximum 8",
        "nvidia-tesla-t4:0:8",
    ),
    (with_options("gpuTotal: [t4:0:8, t4:1:2]"), "p.yaml:10: spec.options.gpuTotal", "names t4 twice", "once"),
    (with_options("namespace: Kube System"), "p.yaml:10: spec.options.namespace", "'Kube System' is not a name", ""),
    (
        with_options("memoryDifferenceRatio: 1.5"),
        "p.yaml:10: spec.options.memoryDifferenceRatio",
        "out of range",
        "from 0 to 1",
    ),
    (
        with_options("expander: grpc"),
        "p.yaml:10: spec.options.expander",
        "grpc asks a server of yours",
        "available: random",
    ),
    (
        with_options("expander: price"),
        "p.yaml:10: spec.options.expander",
        "price cannot work without prices",
        "add spec.prices, such as prices: {cpu",
    ),
    (
        with_options("expander: [priority, least-cost]"),
        "p.yaml:10: spec.options.expander",
        "least-cost cannot work without prices",
        "instanceTypes: {m5.large: 0.096}",
    ),
    (
        with_options("expander: least-wast"),
        "p.yaml:10: spec.options.expander",
        "'least-wast' is unknown",
        "did you mean least-waste?",
    ),
    (with_options("expander: []"), "p.yaml:10: spec.options.expander", "names no expander", "available: random"),
    (
        with_options("expander: least-waste,least-waste"),
        "p.yaml:10: spec.options.expander",
        "names least-waste twice",
        "once",
    ),
    (
        with_options("allowedSchedulerNames: [a]\nbypassedSchedulerNames: [b]"),
        "p.yaml:11: spec.options.bypassedSchedulerNames",
        "b is not among allowedSchedulerNames",
        "add it there",
    ),
    (
        with_options("startupTaint: ['a b']"),
        "p.yaml:10: spec.options.startupTaint[0]",
        "'a b' is not a taint's key",
        "cilium",
    ),
    (with_options("startupTaint: {a: b}"), "p.yaml:10: spec.options.startupTaint", "is a mapping", "write a list"),
    (
        with_options("predicateParallelism: 0"),
        "p.yaml:10: spec.options.predicateParallelism",
        "0 is out of range",
        "1 or more",
    ),
    (
        with_options("enableDynamicResourceAllocation: false"),
        "p.yaml:10: spec.options.enableDynamicResourceAllocation",
        "false is refused",
        "take the line out",
    ),
    (
        with_options("drainPriorityConfig: '0:60'\nmaxGracefulTerminationSec: 5"),
        "p.yaml:10: spec.options.drainPriorityConfig",
        "maxGracefulTerminationSec",
        "drainPriorityConfig alone",
    ),
    (
        with_options("drainPriorityConfig: soon"),
        "p.yaml:10: spec.options.drainPriorityConfig",
        "'soon' is not",
        "0:60,2000:120",
    ),
    (
        with_options("drainPriorityConfig: '0:60,0:90'"),
        "p.yaml:10: spec.options.drainPriorityConfig",
        "names priority 0 twice",
        "0:60,2000:120",
    ),
    (
        with_options("drainPriorityConfig: '9999999999:60'"),
        "p.yaml:10: spec.options.drainPriorityConfig",
        "priority 9999999999 is out of range",
        "to 2147483647",
    ),
    (
        with_options("drainPriorityConfig: '0:-1'"),
        "p.yaml:10: spec.options.drainPriorityConfig",
        "'0:-1' is not",
        "0:60,2000:120",
    ),
    (with_options("estimator: magic"), "p.yaml:10: spec.options.estimator", "'magic' is unknown", "binpacking"),
    (with_spec("options: []"), "p.yaml:9: spec.options", "is a list", "write a mapping"),
]

THE_PRICES: list[Case] = [
    (with_spec("prices:"), "p.yaml:9: spec.prices", "does not say what a node costs", "add cpu and memory"),
    (with_spec("prices: {node: 1}"), "p.yaml:9: spec.prices", "does not say what a node costs", "add cpu and memory"),
    (with_spec("prices: {instanceTypes: {}}"), "p.yaml:9: spec.prices", "does not say what a node costs", "cpu"),
    (with_spec("prices: 0.1"), "p.yaml:9: spec.prices", "is '0.1'", "write a mapping"),
    (with_spec("prices: {cpu: -0.1}"), "p.yaml:9: spec.prices.cpu", "'-0.1' is not a number", "from 0 to 1000000000"),
    (with_spec("prices: {cpu: .inf}"), "p.yaml:9: spec.prices.cpu", "'.inf' is not a number", "such as 0.096"),
    (with_spec("prices: {cpu: nan}"), "p.yaml:9: spec.prices.cpu", "'nan' is not a number", "such as 0.096"),
    (with_spec("prices: {cpu: 9999999999}"), "p.yaml:9: spec.prices.cpu", "out of range", "from 0 to 1000000000"),
    (with_spec("prices: {gpu: 1 CHF}"), "p.yaml:9: spec.prices.gpu", "'1 CHF' is not a number", "such as 0.096"),
    (with_spec("prices: {memory: }"), "p.yaml:9: spec.prices.memory", "has no value", "take the line out"),
    (with_spec("prices: {cpus: 1}"), "p.yaml:9: spec.prices.cpus", "is unknown", "did you mean cpu?"),
    (
        with_spec("prices: {instanceTypes: m5.large}"),
        "p.yaml:9: spec.prices.instanceTypes",
        "is 'm5.large'",
        "as m5.large: 0.096",
    ),
    (with_spec("prices: {instanceTypes: [m5.large]}"), "p.yaml:9: spec.prices.instanceTypes", "is a list", "mapping"),
    (
        with_spec("prices:\n  instanceTypes:\n    m5.large: x"),
        "p.yaml:11: spec.prices.instanceTypes['m5.large']",
        "'x' is not a number",
        "such as 0.096",
    ),
    (
        with_spec("prices:\n  instanceTypes:\n    m5 large: 1"),
        "p.yaml:11: spec.prices.instanceTypes['m5 large']",
        "'m5 large' is not an instance type",
        "m5.large",
    ),
    (
        with_spec("prices:\n  instanceTypes:\n    a: 1\n    a: 2"),
        "p.yaml:12: spec.prices.instanceTypes.a",
        "already given in line 11",
        "keep one",
    ),
    (GOOD + "prices: {cpu: 1}\n", "p.yaml:9: prices", "belongs under spec", "indent it, as spec.prices"),
]

CASES = [
    *THE_FILE,
    *THE_ENVELOPE,
    *THE_SPEC,
    *THE_ACCESS,
    *THE_PROVIDERS,
    *THE_GROUPS,
    *THE_OPTIONS,
    *THE_PRICES,
]


@each_row(("text", "place", "problem", "remedy"), CASES, ids=[f"{case[1]}-{case[2]}"[:70] for case in CASES])
def test_policy_errors_name_their_position(text: str, place: str, problem: str, remedy: str) -> None:
    told = refusals(text)
    fitting = [line for line in told if line.startswith(f"{place}: ") and problem in line and remedy in line]
    assert len(fitting) == 1, told
    assert all("\n" not in line for line in told)


def test_policy_errors_are_reported_at_once_in_document_order() -> None:
    text = (
        "apiVersion: outscaler.dev/v1\n"
        "kind: Cluster\n"
        "metadata: {name: Geneva}\n"
        "spec:\n"
        "  mode: aktive\n"
        "  kubernetes: {kubeconfigSecret: a, eksCluster: b}\n"
        "  providers: {clusterapi: {}}\n"
        "  nodeGroups:\n"
        "    - {provider: clusterapi, id: MachineDeployment/a/b, min: 3, max: 1}\n"
        "    - {provider: foo, id: MachineDeployment/a/b, min: 9, max: x}\n"
        "  options:\n"
        "    maxNodesTotal: many\n"
        "    maxNodesTotal: 3\n"
        "  headroom: [{}]\n"
    )
    assert [line.split(": ")[0] + " " + line.split(": ")[1] for line in refusals(text)] == [
        "p.yaml:3 metadata.name",
        "p.yaml:5 spec.mode",
        "p.yaml:6 spec.kubernetes.eksCluster",
        "p.yaml:9 spec.nodeGroups[0].max",
        "p.yaml:10 spec.nodeGroups[1].provider",
        "p.yaml:10 spec.nodeGroups[1].max",
        "p.yaml:10 spec.nodeGroups[1].id",
        "p.yaml:12 spec.options.maxNodesTotal",
        "p.yaml:13 spec.options.maxNodesTotal",
        "p.yaml:14 spec.headroom[0].name",
    ]


@each_row(
    ("chain", "says"),
    [
        ("[random, least-waste]", "names another expander after random; random leaves nothing to choose: put it last"),
        ("random,least-waste", "names another expander after random; random leaves nothing to choose: put it last"),
        ("[least-waste, least-waste]", "names least-waste twice; name each expander once"),
        ("least-waste,random,random", "names random twice; name each expander once"),
    ],
    ids=["X5-after-random", "X5-as-a-flag", "X5-twice", "X5-random-twice"],
)
def test_policy_refuses_an_expander_chain_that_upstream_refuses(chain: str, says: str) -> None:
    assert f"p.yaml:10: spec.options.expander: {says}" in refusals(with_options(f"expander: {chain}"))


def test_policy_error_does_not_repeat_a_pasted_secret() -> None:
    pasted = "hunter2 is my secret!"
    told = refusals(with_access(f"{{kubeconfigSecret: '{pasted}'}}"))
    told += refusals(with_providers(f"{{exoscale: {{apiToken: '{pasted}'}}}}"))
    assert not any("hunter2" in line for line in told)


def test_policy_refuses_a_billion_laughs_before_expansion() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)]
    (told,) = refusals("\n".join(lines))
    assert "more than 20000 values once aliases are written out" in told


def test_policy_errors_shorten_long_text() -> None:
    (told,) = refusals(with_options(f"maxNodesTotal: {'9a' * 5000}"))
    assert len(told) < 300
