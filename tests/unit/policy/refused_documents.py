"""Invalid documents with the expected position, problem and remedy."""

from __future__ import annotations

from tests.unit.policy.policy_documents import (
    GOOD,
    HEAD,
    with_access,
    with_groups,
    with_providers,
    with_spec,
)

SPEC = "spec:\n  kubernetes: {eksCluster: a}\n  providers: {clusterapi: {}}\n"


# text, position, part of the problem, part of the remedy
Case = tuple[str, str, str, str]


THE_FILE: list[Case] = [
    ("", "p.yaml", "is empty", "start with apiVersion"),
    ("# only a comment\n", "p.yaml", "is empty", "start with apiVersion"),
    ("just words", "p.yaml:1", "is 'just words'", "write a mapping"),
    ("- a\n- b\n", "p.yaml:1", "is a list", "write a mapping"),
    ("a: [1\nb: 2\n", "p.yaml:2", "not YAML, column 2", "begins in line 1"),
    ("a: 'never ends\n", "p.yaml:1", "quoted scalar", "the preceding line"),
    ("a:\n\t- b\n", "p.yaml:2", "cannot start any token", "the preceding line"),
    ("a: b: c\n", "p.yaml:1", "mapping values are not allowed", "the preceding line"),
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
    (
        GOOD.replace("dev/v1", "dev/v2"),
        "p.yaml:1: apiVersion",
        "'outscaler.dev/v2' is unknown",
        "outscaler.dev/v1",
    ),
    (
        GOOD.replace("kind: Cluster", "kind: Clutser"),
        "p.yaml:2: kind",
        "'Clutser' is unknown",
        "did you mean Cluster?",
    ),
    (
        GOOD.replace("kind: Cluster", "kind: [Cluster]"),
        "p.yaml:2: kind",
        "is a list",
        "write Cluster",
    ),
    (
        GOOD.replace("metadata: {name: prod-geneva}\n", ""),
        "p.yaml:1: metadata",
        "is missing",
        "metadata: {name: NAME}",
    ),
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
    (
        GOOD.replace("{name: prod-geneva}", "{name: ~}"),
        "p.yaml:3: metadata.name",
        "has no value",
        "take the line out",
    ),
    (
        GOOD.replace("{name: prod-geneva}", "{name: a, lables: {}}"),
        "p.yaml:3: metadata.lables",
        "is unknown",
        "known here: name",
    ),
    (HEAD, "p.yaml:1: spec", "is missing", "spec with kubernetes and providers"),
    (
        HEAD + "spec:\n",
        "p.yaml:4: spec.kubernetes",
        "is missing",
        "kubernetes: {kubeconfigSecret: NAME}",
    ),
    (HEAD + "spec: []\n", "p.yaml:4: spec", "is a list", "write a mapping"),
    (GOOD + "spce: {}\n", "p.yaml:9: spce", "is unknown", "did you mean spec?"),
    (
        GOOD + "nodeGroups: []\n",
        "p.yaml:9: nodeGroups",
        "belongs under spec",
        "indent it, as spec.nodeGroups",
    ),
    (GOOD + "kind: Cluster\n", "p.yaml:9: kind", "already given in line 2", "keep one of the two"),
    (
        with_spec("<<: {mode: off}"),
        'p.yaml:9: spec["<<"]'.replace('"', "'"),
        "is unknown",
        "merge keys are not used",
    ),
]


THE_SPEC: list[Case] = [
    (with_spec("mode: active"), "p.yaml:9: spec.mode", "already given in line 5", "keep one"),
    (
        GOOD.replace("active", "acitve"),
        "p.yaml:5: spec.mode",
        "'acitve' is unknown",
        "did you mean active?",
    ),
    (
        GOOD.replace("active", "on"),
        "p.yaml:5: spec.mode",
        "'on' is unknown",
        "off, shadow or active",
    ),
    (
        GOOD.replace("active", "false"),
        "p.yaml:5: spec.mode",
        "'false' is unknown",
        "off, shadow or active",
    ),
    (
        GOOD.replace("active", "Active"),
        "p.yaml:5: spec.mode",
        "'Active' is unknown",
        "did you mean active?",
    ),
    (
        with_spec("scanInterval: 20"),
        "p.yaml:9: spec.scanInterval",
        "'20' is not a duration",
        "30s, 10m, 1h30m",
    ),
    (with_spec("scanInterval: 1s"), "p.yaml:9: spec.scanInterval", "out of range", "from 5s to 1h"),
    (with_spec("scanInterval: 2h"), "p.yaml:9: spec.scanInterval", "out of range", "from 5s to 1h"),
    (
        with_spec("scanInterval: -10s"),
        "p.yaml:9: spec.scanInterval",
        "is negative",
        "from 5s to 1h",
    ),
    (
        with_spec("scanInterval: 12:30"),
        "p.yaml:9: spec.scanInterval",
        "'12:30' is not a duration",
        "as Go does",
    ),
    (
        with_spec("scanInterval: {seconds: 5}"),
        "p.yaml:9: spec.scanInterval",
        "is a mapping",
        "write a duration",
    ),
    (
        with_spec("scaninterval: 20s"),
        "p.yaml:9: spec.scaninterval",
        "is unknown",
        "did you mean scanInterval?",
    ),
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
    (
        HEAD + "spec: {providers: {clusterapi: {}}}\n",
        "p.yaml:4: spec.kubernetes",
        "is missing",
        "kubeconfigSecret",
    ),
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
    (
        with_providers("{}"),
        "p.yaml:5: spec.providers",
        "names no provider",
        "alicloud, cherryservers, clusterapi",
    ),
    (with_providers("[clusterapi]"), "p.yaml:5: spec.providers", "is a list", "write a mapping"),
    (
        with_providers("{clusterapis: {}}"),
        "p.yaml:5: spec.providers.clusterapis",
        "is not a provider",
        "did you mean clusterapi?",
    ),
    (
        with_providers("{aws: {}}"),
        "p.yaml:5: spec.providers.aws",
        "is not a provider",
        "known: alicloud",
    ),
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
    (
        with_groups("1:10:workers"),
        "p.yaml:10: spec.nodeGroups[0]",
        "is '1:10:workers'",
        "write a mapping",
    ),
    (
        with_spec("nodeGroups: {workers: {max: 2}}"),
        "p.yaml:9: spec.nodeGroups",
        "is not a list",
        "- {provider: NAME, id: ID",
    ),
]
