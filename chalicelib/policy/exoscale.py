"""spec.providers.exoscale: the settings of Exoscale's SKS Nodepools and Instance Pools.

Each value is validated on its own here. The provider validates combinations (environment with endpoint, groups named
twice), because it also knows nodeGroups.
"""

from __future__ import annotations

from chalicelib.policy.provider_value_types import (
    KUBELET_RESERVE,
    YES_OR_NO,
    as_text,
    bounds_of,
    calls_per_second,
    https_address,
)
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import SECRET, text, whole

_LARGEST = 1_000_000


EXOSCALE = Section(
    fields=(
        Field(
            "zone",
            text("a zone", r"[a-z]{2}-[a-z]{3}-[0-9]{1,3}", "something like ch-gva-2"),
            "zone",
            "Zone of the cluster (upstream: EXOSCALE_ZONE).",
            required=True,
            example="zone: ch-gva-2",
        ),
        Field(
            "credentialsSecret",
            SECRET,
            "credentialsSecret",
            "Secret with apiKey and apiSecret, as JSON or as lines EXOSCALE_API_KEY=… and EXOSCALE_API_SECRET=….",
            required=True,
            example="credentialsSecret: outscaler/prod/exoscale",
        ),
        Field(
            "observeSecret",
            SECRET,
            "observeSecret",
            "The same with keys that may only read: what passes look with; changes are made with credentialsSecret.",
        ),
        Field(
            "nodes",
            bounds_of("name", "1:10:web"),
            "nodes",
            "Groups as upstream's --nodes: a Nodepool's or an Instance Pool's name or id, or cluster/name; others "
            "may be in nodeGroups. Pools that are not named are groups only with sksCluster or autoDiscovery, with "
            "min 1 and the account's quota as max.",
        ),
        Field(
            "sksCluster",
            text(
                "an SKS cluster's name or id",
                r"[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,253}"
                r"[^\s\x00-\x1f\x7f])?",
                "something like prod",
            ),
            "sksCluster",
            "SKS cluster whose Nodepools are seen even while it has no node at all.",
        ),
        Field(
            "scaleFromZero",
            YES_OR_NO,
            "scaleFromZero",
            "Nodepools without nodes are groups too, if their SKS cluster has other nodes of this cluster.",
            default="true",
        ),
        Field(
            "autoDiscovery",
            YES_OR_NO,
            "autoDiscovery",
            "Pools that neither nodes nor nodeGroups name are groups, too, as in Cluster Autoscaler. Without named "
            "pools they always are.",
            default="false",
        ),
        Field(
            "unlimitedMax",
            as_text(whole(1, _LARGEST)),
            "unlimitedMax",
            "The largest size of a group where the account's quota has no limit.",
            default="1000",
        ),
        Field(
            "environment",
            text("the beginning of a host's name", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "api"),
            "environment",
            "The vendor's environment (upstream: EXOSCALE_API_ENVIRONMENT).",
            default="api",
        ),
        Field(
            "endpoint",
            https_address("https://api-ch-gva-2.exoscale.com/v2", path=True),
            "endpoint",
            "Another address of the API than https://<environment>-<zone>.exoscale.com/v2.",
        ),
        calls_per_second("10", "Calls per second of all functions together with one key in one zone."),
        *KUBELET_RESERVE,
    )
)
