"""Generated bootstrap tokens, in a few Secrets with fixed names.

A token without expiry would be a key to the cluster on every server ever bought; a generated token expires. Ids are
fixed because they are not secret and RBAC can then allow `get` and `update` of these four Secrets by name. A random id
would have to be looked up, which needs the right to list, that is to read, every Secret of kube-system. Four are
enough: a new token is made when half of the newest one's lifetime is over, so two or three are valid at a time. Expired
tokens are deleted by the cluster's token cleaner, or overwritten here if there is none.
"""

from __future__ import annotations

import base64
import re
import secrets
import string
from collections.abc import Callable

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.secret import Secret
from chalicelib.model.timestamps import format_time, parse_time
from chalicelib.providers.cherryservers.bootstrap_token import SECRET, Token
from chalicelib.providers.errors import Conflict, NotFound, ProviderError, Transient
from chalicelib.providers.http_statuses import class_for
from chalicelib.providers.kube_protocol import KubeApi

IDS = ("outsc0", "outsc1", "outsc2", "outsc3")
LABEL = "outscaler.dev/bootstrap"
PATH = "/api/v1/namespaces/kube-system/secrets"
TYPE = "bootstrap.kubernetes.io/token"
GROUPS = "system:bootstrappers:kubeadm:default-node-token"

_ALPHABET = string.ascii_lowercase + string.digits
_MANIFEST = "infra/kubernetes/rbac-bootstrap-tokens.yaml"
_ROUNDS = 3


def by_chance() -> str:
    """Return the secret part of a new token: 16 random letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))


class _TokenMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] | None = None


class _CachedToken(msgspec.Struct, frozen=True):
    metadata: _TokenMeta = _TokenMeta()
    type: str = ""
    data: dict[str, str] | None = None


class Slot(msgspec.Struct, frozen=True):
    """One of our Secrets. version "": it does not exist. ours: it may be overwritten. ends: 0.0 without a usable
    token."""

    id: str
    version: str = ""
    ours: bool = True
    token: Token | None = None
    ends: float = 0.0


class MadeTokens:
    """kube: the cluster that servers join. lifetime: seconds of a new token; draw: generates its secret part."""

    def __init__(
        self,
        kube: KubeApi,
        cluster: str,
        lifetime: float,
        now: Callable[[], float],
        draw: Callable[[], str],
    ) -> None:
        self._kube, self._cluster, self._lifetime, self._now, self._draw = kube, cluster, lifetime, now, draw

    def current(self) -> Token:
        """Return a token with at least half of its lifetime left. Raises ProviderError."""
        for _ in range(_ROUNDS):
            slots: list[Slot] = []
            for name in IDS:
                slot = self._read(name)
                if slot.token is not None and slot.ends - self._now() >= self._lifetime / 2:
                    return slot.token
                slots.append(slot)
            free = sorted((slot for slot in slots if slot.ours and slot.ends <= self._now()), key=_absent_first)
            if not free:
                return _longest(slots)
            try:
                return self._write(free[0])
            except (Conflict, NotFound):
                continue  # another function or the cleaner was faster: read again and use its token
        raise Transient("the bootstrap tokens in kube-system change faster than they can be read")

    def _read(self, name: str) -> Slot:
        try:
            body = self._ask("GET", f"{PATH}/bootstrap-token-{name}", None, ())
        except NotFound:
            return Slot(name)
        try:
            kept = msgspec.json.decode(body, type=_CachedToken)
        except msgspec.MsgspecError:
            raise Transient(f"the API server's answer is not a Secret: bootstrap-token-{name}") from None
        version, labels = kept.metadata.resource_version, kept.metadata.labels or {}
        if kept.type != TYPE or LABEL not in labels:
            return Slot(name, version, ours=False)
        return _understood(name, version, kept.data or {})

    def _write(self, slot: Slot) -> Token:
        token = Token(slot.id, Secret(self._draw()))
        metadata = {"name": f"bootstrap-token-{slot.id}", "namespace": "kube-system", "labels": {LABEL: "true"}}
        if slot.version:
            metadata["resourceVersion"] = slot.version
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": TYPE,
            "metadata": metadata,
            "data": {key: base64.b64encode(text.encode()).decode() for key, text in self._texts(token).items()},
        }
        method, path = ("PUT", f"{PATH}/bootstrap-token-{slot.id}") if slot.version else ("POST", PATH)
        self._ask(method, path, body, (token.secret, Secret(body["data"]["token-secret"])))  # type: ignore[index]
        return token

    def _texts(self, token: Token) -> dict[str, str]:
        return {
            "token-id": token.id,
            "token-secret": token.secret.reveal(),
            "expiration": format_time(self._now() + self._lifetime),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": GROUPS,
            "description": f"Made by Outscaler for new machines of cluster {self._cluster}; ends by itself.",
        }

    def _ask(self, method: str, path: str, body: object | None, hidden: tuple[Secret, ...]) -> bytes:
        """Send one request. Errors of the cluster are mapped by status and do not contain the token."""
        try:
            return self._kube.request(method, path) if body is None else self._kube.request(method, path, body=body)
        except ProviderError:
            raise
        except OutscalerError as error:
            text, status = str(error), getattr(error, "status", None)
            for secret in hidden:
                text = secret.hidden_in(text)
            cls = class_for(status)
            hint = f"; apply {_MANIFEST}" if status == 403 else ""
            raise cls(
                f"bootstrap token: {method} {path}: {text}{hint}",
                code=str(status or ""),
                retry_after=float(getattr(error, "retry_after", 0.0) or 0.0),
            ) from None


def _understood(name: str, version: str, data: dict[str, str]) -> Slot:
    """Return the Secret's token; none if its contents are damaged, so that it is overwritten."""
    try:
        texts = {key: base64.b64decode(text, validate=True).decode("ascii") for key, text in data.items()}
        ends = parse_time(texts.get("expiration", ""))
    except (ValueError, BadInput):
        return Slot(name, version)
    secret = texts.get("token-secret", "")
    usable = texts.get("token-id") == name and re.fullmatch(SECRET, secret, re.ASCII)
    if not usable or texts.get("usage-bootstrap-authentication") != "true":
        return Slot(name, version)
    return Slot(name, version, token=Token(name, Secret(secret)), ends=ends)


def _absent_first(slot: Slot) -> tuple[bool, float]:
    return bool(slot.version), slot.ends


def _longest(slots: list[Slot]) -> Token:
    """Return the token with the longest remaining lifetime, if all four are valid after a change of lifetime or clock.

    None of them may be overwritten, because servers that are booting use them."""
    alive = [slot for slot in slots if slot.token is not None]
    if not alive:
        names = ", ".join(f"bootstrap-token-{name}" for name in IDS)
        raise Conflict(f"none of the Secrets {names} in kube-system is ours; delete one of them")
    best = max(alive, key=lambda slot: slot.ends)
    assert best.token is not None
    return best.token
