"""Maps a request to an operation of the API: its name in the vendor's document, and the ids in its path."""

from __future__ import annotations

from infra.emulators.vendor_common.routes import VendorRoutes

ROOT = "/v2"
WRITES = frozenset(
    {"scale-instance-pool", "evict-instance-pool-members", "scale-sks-nodepool", "evict-sks-nodepool-members"}
)
_NODEPOOL = "/sks-cluster/{id}/nodepool/{sks-nodepool-id}"
_PATHS = (
    ("GET", "/zone", "list-zones"),
    ("GET", "/instance", "list-instances"),
    ("GET", "/instance/{id}", "get-instance"),
    ("GET", "/instance-pool", "list-instance-pools"),
    ("GET", "/instance-pool/{id}", "get-instance-pool"),
    ("PUT", "/instance-pool/{id}:scale", "scale-instance-pool"),
    ("PUT", "/instance-pool/{id}:evict", "evict-instance-pool-members"),
    ("GET", "/sks-cluster", "list-sks-clusters"),
    ("GET", "/sks-cluster/{id}", "get-sks-cluster"),
    ("GET", _NODEPOOL, "get-sks-nodepool"),
    ("PUT", f"{_NODEPOOL}:scale", "scale-sks-nodepool"),
    ("PUT", f"{_NODEPOOL}:evict", "evict-sks-nodepool-members"),
    ("GET", "/quota/{entity}", "get-quota"),
    ("GET", "/instance-type", "list-instance-types"),
    ("GET", "/instance-type/{id}", "get-instance-type"),
    ("GET", "/operation/{id}", "get-operation"),
)
OPERATIONS = frozenset(operation for _, _, operation in _PATHS)
ROUTES = VendorRoutes(((method, ROOT + path, operation, "") for method, path, operation in _PATHS), value="[^/:]*")
