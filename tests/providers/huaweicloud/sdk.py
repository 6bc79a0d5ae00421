"""The vendor's own client, connected to an emulated project."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from infra.emulators.huaweicloud.models import CceCluster
from infra.emulators.huaweicloud.server import HuaweiServer

KEY, SECRET = "AKIDEXAMPLE00000TEST", "SKEXAMPLEsecretkey0123456789abcdefghijkl"


class SdkClock:
    """The wall clock, which the client signs with, plus the time that a test lets pass."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> float:
        return time.time() + self.passed


class Official:
    """The SDK's modules. Importing them is slow and writes a file into the home directory."""

    def __init__(self) -> None:
        self.cce: Any = importlib.import_module("huaweicloudsdkcce.v3")
        self.credentials: Any = importlib.import_module(
            "huaweicloudsdkcore.auth.credentials"
        ).BasicCredentials
        self.errors: Any = importlib.import_module("huaweicloudsdkcore.exceptions.exceptions")
        self.config: Any = importlib.import_module("huaweicloudsdkcore.http.http_config").HttpConfig
        self.request: Any = importlib.import_module("huaweicloudsdkcore.sdk_request").SdkRequest
        self.signer: Any = importlib.import_module("huaweicloudsdkcore.signer.signer").Signer


def load(home: str) -> Official:
    """Imports the SDK with a temporary home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", {**os.environ, "HOME": home})
        return Official()


class Drive:
    """A project, its first cluster, and the client that is connected to it."""

    def __init__(self, server: HuaweiServer, clock: SdkClock, official: Official) -> None:
        self.server, self.cloud, self.clock, self.official = server, server.cloud, clock, official
        self.cluster: CceCluster = self.cloud.add_cluster("prod")
        self.client = self.client_for(KEY, SECRET)

    def client_for(self, key: str, secret: str, token: str = "") -> Any:
        """Builds a client. token: of temporary keys."""
        credentials = self.official.credentials(key, secret, self.cloud.project)
        if token:
            credentials = credentials.with_security_token(token)
        config = self.official.config.get_default_config()
        config.ignore_ssl_verification, config.timeout = True, (5, 10)
        return (
            self.official.cce.CceClient.new_builder()
            .with_http_config(config)
            .with_credentials(credentials)
            .with_endpoint(self.server.url)
            .build()
        )

    def after(self, seconds: float) -> None:
        """Advances the clock."""
        self.clock.passed += seconds

    def ask(self, call: str, request: str, client: Any = None, **values: Any) -> Any:
        """Makes one call for the cluster; values: the request's fields."""
        made = getattr(self.official.cce, f"{request}Request")(
            cluster_id=self.cluster.uid, **values
        )
        return getattr(client or self.client, call)(made)

    def pools(self, **values: Any) -> list[Any]:
        """Returns the list of pools."""
        return list(self.ask("list_node_pools", "ListNodePools", **values).items)

    def pool(self, uid: str) -> Any:
        """Returns one pool."""
        return self.ask("show_node_pool", "ShowNodePool", nodepool_id=uid)

    def nodes(self, **values: Any) -> Any:
        """Returns a page of nodes."""
        return self.ask("list_nodes", "ListNodes", **values)

    def scale(
        self, uid: str, total: int | None, *groups: str, client: Any = None, **options: Any
    ) -> Any:
        """Scales a pool. total: None to omit it."""
        cce = self.official.cce
        spec = cce.ScaleNodePoolSpec(
            desired_node_count=total,
            scale_groups=list(groups),
            options=cce.ScaleNodePoolOptions(**options) if options else None,
        )
        return self.ask(
            "scale_node_pool",
            "ScaleNodePool",
            client,
            nodepool_id=uid,
            body=cce.ScaleNodePoolRequestBody(kind="NodePool", api_version="v3", spec=spec),
        )

    def update(self, uid: str, **spec: Any) -> Any:
        """Updates a pool. spec: of the update."""
        cce = self.official.cce
        body = cce.NodePoolUpdate(
            metadata=cce.NodePoolMetadataUpdate(name="renamed"), spec=cce.NodePoolSpecUpdate(**spec)
        )
        return self.ask("update_node_pool", "UpdateNodePool", nodepool_id=uid, body=body)

    def refused(self, call: Callable[[], Any]) -> Any:
        """Returns the SDK's error for a 4xx."""
        with pytest.raises(self.official.errors.ClientRequestException) as raised:
            call()
        return raised.value
