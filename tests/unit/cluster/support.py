"""Shared parts of the kube tests: a kubeconfig for a scripted server, and a
client that never waits.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.credentials import KubeCredential
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.scripted_http_server import HttpScript

TOKEN = "a-token-nobody-may-see"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kubeconfig(
    server: str = "https://cluster.test",
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A kubeconfig with one context, one cluster and one user; the given
    parts replace the usual ones."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "there", "user": "me"}}],
        "clusters": [{"name": "there", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "me", "user": {"token": TOKEN} if user is None else user}],
    }


class Known:
    """Credentials that never change."""

    def __init__(self, credential: KubeCredential) -> None:
        self._credential = credential

    def current(self) -> KubeCredential:
        return self._credential

    def renew(self) -> None:
        """Does nothing: there is no newer credential."""


class Waits:
    """Stands in for sleeping: records the durations."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class ScriptedSecrets:
    """A secret reader with a cache, like the one for Secrets Manager; `now` is the stored value."""

    def __init__(self, **now: str) -> None:
        self.now = now
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return self._known.get(name) or self.fresh(name)

    def fresh(self, name: str) -> str:
        self._known[name] = self.now[name]
        return self.now[name]


def client(
    server: HttpScript | str,
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    sleep: Callable[[float], None] | None = None,
    insecure: bool = False,
    hosted: bool = False,
) -> KubeClient:
    """A connection by a kubeconfig from a secret. `sleep` records the
    pauses; jitter is always half."""
    url = server if isinstance(server, str) else server.url
    secrets = ScriptedSecrets(config=json.dumps(kubeconfig(url, user=user, cluster=cluster)))
    access = KubernetesAccess(kubeconfig_secret="config", allow_insecure_tls=insecure)
    return connect(
        access,
        secrets,
        clock=lambda: 0.0,
        sleep=sleep or Waits(),
        jitter=lambda: 0.5,
        hosted=hosted,
    )


def file_client(path: Path, config: dict[str, Any]) -> KubeClient:
    """A connection by a kubeconfig file with that content."""
    path.write_text(json.dumps(config))
    access = KubernetesAccess(kubeconfig_file=str(path))
    return connect(
        access, ScriptedSecrets(), clock=lambda: 0.0, sleep=Waits(), jitter=lambda: 0.5, files=True
    )


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> dict[str, Any]:
    """A metav1.Status with status Failure."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "code": code,
    }
    if reason:
        body["reason"] = reason
    if details:
        body["details"] = details
    return body
