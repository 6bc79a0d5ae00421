"""Interprets a server's cloud-init: whether the cluster admits the server, and the labels its kubelet sets.

It follows kubeadm and the kubelet: a token is valid while the cluster has its Secret and the Secret has not expired.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from chalicelib.model.timestamps import parse_time
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore

KIND, NAMESPACE = "bootstrap.kubernetes.io/token", "kube-system"
_TOKEN = re.compile(r"(?<![a-z0-9.])([a-z0-9]{6})\.([a-z0-9]{16})(?![a-z0-9.])")
_LABELS = re.compile(r"--node-labels[= ]\"?([^\s\"']+)")


def script(user_data: str) -> str:
    """Return the decoded text, "" if it is absent or unreadable."""
    try:
        return base64.b64decode(user_data, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def node_labels(user_data: str) -> dict[str, str]:
    """Return labels of `--node-labels=pool=workers,team=web` in the script."""
    found: dict[str, str] = {}
    for text in _LABELS.findall(script(user_data)):
        for each in text.split(","):
            key, equals, value = each.partition("=")
            if equals:
                found[key] = value
    return found


def admitted(user_data: str, store: ObjectStore, now: float) -> bool:
    """Return whether one of the tokens in the script is valid in the cluster at this time."""
    for token_id, secret in _TOKEN.findall(script(user_data)):
        held = store.peek("secrets", f"bootstrap-token-{token_id}", NAMESPACE)
        if held is not None and _opens(held, token_id, secret, now):
            return True
    return False


def _opens(held: KubeObject, token_id: str, secret: str, now: float) -> bool:
    data = _data(held)
    end = data.get("expiration", "")
    return (
        held.get("type") == KIND
        and data.get("token-id") == token_id
        and data.get("token-secret") == secret
        and data.get("usage-bootstrap-authentication") == "true"
        and (not end or now < parse_time(end))
    )


def _data(held: KubeObject) -> Mapping[str, str]:
    """Return a Secret's decoded values. The server stores them as base64, in whichever form they were sent."""
    found = {key: base64.b64decode(value).decode() for key, value in (held.get("data") or {}).items()}
    return {**found, **(held.get("stringData") or {})}
