"""What a server's cloud-init makes of it: whether the cluster lets it in, and which labels its kubelet asks for.

Read as kubeadm and the kubelet would: a token is valid while the cluster holds its Secret and that has not expired.
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
    """The text, "" where there is none or it cannot be read."""
    try:
        return base64.b64decode(user_data, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def node_labels(user_data: str) -> dict[str, str]:
    """`--node-labels=pool=workers,team=web` in the script."""
    found: dict[str, str] = {}
    for text in _LABELS.findall(script(user_data)):
        for each in text.split(","):
            key, equals, value = each.partition("=")
            if equals:
                found[key] = value
    return found


def admitted(user_data: str, store: ObjectStore, now: float) -> bool:
    """Whether one of the tokens in the script opens the cluster's door at this time."""
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
    """A Secret's values; a server keeps them as base64, whichever way they came."""
    found = {key: base64.b64decode(value).decode() for key, value in (held.get("data") or {}).items()}
    return {**found, **(held.get("stringData") or {})}
