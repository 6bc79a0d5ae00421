"""Maps a request to an operation of a service, the permission that it needs,
and the ids in its path.
"""

from __future__ import annotations

from infra.emulators.vendor_common.http_messages import VendorRoutes

WRITES = frozenset(
    {"scale-pool", "update-pool", "delete-node", "lock-nodes", "unlock-nodes", "reboot-servers"}
)
_PROJECT = "/api/v3/projects/{project}"
_CLUSTER = f"{_PROJECT}/clusters/{{cluster}}"
_POOL = f"{_CLUSTER}/nodepools/{{pool}}"
ROUTES = VendorRoutes(
    (
        ("GET", _CLUSTER, "show-cluster", "cce:cluster:get"),
        ("GET", f"{_CLUSTER}/nodepools", "list-pools", "cce:nodepool:list"),
        ("GET", _POOL, "show-pool", "cce:nodepool:get"),
        ("PUT", _POOL, "update-pool", "cce:nodepool:update"),
        ("POST", f"{_POOL}/operation/scale", "scale-pool", "cce:nodepool:scale"),
        ("GET", f"{_CLUSTER}/nodes", "list-nodes", "cce:node:list"),
        ("POST", f"{_CLUSTER}/nodes/locknodescaledown", "lock-nodes", "cce:node:update"),
        ("POST", f"{_CLUSTER}/nodes/unlocknodescaledown", "unlock-nodes", "cce:node:update"),
        ("GET", f"{_CLUSTER}/nodes/{{node}}", "show-node", "cce:node:get"),
        ("DELETE", f"{_CLUSTER}/nodes/{{node}}", "delete-node", "cce:node:delete"),
        ("GET", f"{_PROJECT}/jobs/{{job}}", "show-job", "cce:job:get"),
        ("GET", "/api/v3/addons", "list-addons", "cce:addonInstance:list"),
        ("GET", "/v1/{project}/cloudservers/flavors", "list-flavors", "ecs:cloudServerFlavors:get"),
        ("POST", "/v1/{project}/cloudservers/action", "reboot-servers", "ecs:cloudServers:reboot"),
        ("GET", "/v1/{project}/jobs/{job}", "show-server-job", ""),
        ("GET", "/v3/projects", "list-projects", "iam:projects:listProjects"),
        ("POST", "/v2/bills/ratings/on-demand-resources", "rate-products", ""),
        ("POST", "/v3.0/OS-CREDENTIAL/securitytokens", "assume-agency", ""),
    )
)
