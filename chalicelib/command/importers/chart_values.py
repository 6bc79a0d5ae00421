"""Values of Cluster Autoscaler's Helm chart that do not become a flag, and why."""

from __future__ import annotations

from collections.abc import Mapping

_POD = "about a process in the cluster, which does not exist here"
_OTHERS = "about a provider that Outscaler does not have"
_RULES = "not carried over: rules for Outscaler's own metrics are written by the operator"

WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "additionalLabels",
            "affinity",
            "containerSecurityContext",
            "deployment",
            "dnsConfig",
            "dnsPolicy",
            "extraObjects",
            "fullnameOverride",
            "global",
            "hostNetwork",
            "initContainers",
            "kubeTargetVersionOverride",
            "livenessProbe",
            "nameOverride",
            "nodeSelector",
            "podAnnotations",
            "podDisruptionBudget",
            "podLabels",
            "priorityClassName",
            "priorityConfigMapAnnotations",
            "rbac",
            "replicaCount",
            "resources",
            "revisionHistoryLimit",
            "securityContext",
            "service",
            "serviceAccount",
            "startupProbe",
            "terminationGracePeriodSeconds",
            "tolerations",
            "topologySpreadConstraints",
            "updateStrategy",
            "vpa",
        ),
        _POD,
    ),
    "serviceMonitor": "metrics of Outscaler are not scraped from a pod",
    "prometheusRule": _RULES,
}
UNUSED: Mapping[str, str] = dict.fromkeys(
    (
        "autoscalingGroupsnamePrefix",
        "awsAccessKeyID",
        "awsRegion",
        "awsSecretAccessKey",
        "azureClientID",
        "azureClientSecret",
        "azureClusterName",
        "azureEnableForceDelete",
        "azureNodeResourceGroup",
        "azureResourceGroup",
        "azureSubscriptionID",
        "azureTenantID",
        "azureUseManagedIdentityExtension",
        "azureUseWorkloadIdentityExtension",
        "azureUserAssignedIdentityID",
        "azureVMType",
        "civoApiKey",
        "civoApiUrl",
        "civoClusterID",
        "civoRegion",
        "kwokConfigMapName",
        "magnumCABundlePath",
        "magnumClusterName",
        "sslCertHostPath",
        "sslCertPath",
    ),
    _OTHERS,
)
CREDENTIALS: Mapping[str, tuple[str, ...]] = {  # provider -> variables that a Secret of its own has
    "alicloud": ("ACCESS_KEY_ID", "ACCESS_KEY_SECRET"),
    "cherryservers": ("CHERRY_AUTH_TOKEN",),
    "exoscale": ("EXOSCALE_API_KEY", "EXOSCALE_API_SECRET"),
}
