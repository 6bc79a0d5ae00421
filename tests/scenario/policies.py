"""Policy documents for scenarios: a scenario gives the fields it is about, and the
rest has typical values.
"""

from __future__ import annotations

import json
from typing import Any


def document(
    name: str = "shop", *, mode: str = "active", scan: str = "60s", secret: str = "", **spec: Any
) -> str:
    """A policy of one Cluster API cluster. secret: the kubeconfig's; spec: further
    fields, as `options={...}`."""
    return json.dumps(
        {  # JSON is valid YAML
            "apiVersion": "outscaler.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {
                "mode": mode,
                "scanInterval": scan,
                "providers": {"clusterapi": {}},
                "kubernetes": {"kubeconfigSecret": secret or f"outscaler/{name}/kubeconfig"},
                **spec,
            },
        }
    )


WEBHOOK = {"secret": "outscaler/shop/webhook"}


def refusal(code: int, message: str) -> dict[str, Any]:
    """The fields of a Fault with which an API server rejects a request."""
    reason = {
        401: "Unauthorized",
        403: "Forbidden",
        429: "TooManyRequests",
        503: "ServiceUnavailable",
    }[code]
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": message,
    }
    return {"status": code, "body": json.dumps(status).encode()}
