"""The two kinds of tokens: the vendor's API token, and the bootstrap token with which a new
server joins the cluster.

Upstream takes the parts of a bootstrap token from its environment and checks neither. With a wrong
part, servers are paid for and never join, so both are checked before one is bought. No error
contains any part of a token.

The bootstrap token is in the operator's secret, or generated in a few Secrets with fixed names. A
token without expiry would be a key to the cluster on every server ever bought; a generated token
expires. Ids are fixed because they are not secret and RBAC can then allow `get` and `update` of
these four Secrets by name. A random id would have to be looked up, which needs the right to list,
that is to read, every Secret of kube-system. Four are enough: a new token is made when half of the
newest one's lifetime is over, so two or three are valid at a time. Expired tokens are deleted by
the cluster's token cleaner, or overwritten here if there is none.
"""

from __future__ import annotations

import base64
import re
import secrets
import string
from collections.abc import Callable, Iterable
from typing import Protocol, cast

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.secret import Secret, is_sendable, place_of
from chalicelib.model.timestamps import format_time, parse_time
from chalicelib.policy.vendors.cherryservers import PLACE, CherrySettings
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.credential_source import as_provider_error, read_fresh
from chalicelib.providers.kit.errors import (
    Conflict,
    NotFound,
    ProviderError,
    Transient,
    Unauthorized,
    class_for,
)
from chalicelib.providers.kit.services import KubeApi

IDS = ("outsc0", "outsc1", "outsc2", "outsc3")
LABEL = "outscaler.dev/bootstrap"
PATH = "/api/v1/namespaces/kube-system/secrets"
TYPE = "bootstrap.kubernetes.io/token"
GROUPS = "system:bootstrappers:kubeadm:default-node-token"

_ID, _SECRET = "[a-z0-9]{6}", "[a-z0-9]{16}"
_ALPHABET = string.ascii_lowercase + string.digits
_APPLY = "outscaler manifests rbac-bootstrap-tokens | kubectl apply -f -"
_ROUNDS = 3

# A field's letters in lower case, without dashes and underscores. The vendor's tools differ:
# cherryctl and upstream read CHERRY_AUTH_TOKEN, cherrygo reads CHERRY_API_KEY, upstream's
# Kubernetes Secret has `authtoken`.
_API_FIELDS = frozenset({"authtoken", "cherryauthtoken", "cherryapikey", "token"})
_API_FORM = 'write the token alone, or {"authToken": "…"}'
_LONGEST_API_TOKEN = 4096
_FIELDS = {
    **dict.fromkeys(("tokenid", "bootstraptokenid", "id"), "id"),
    **dict.fromkeys(("tokensecret", "bootstraptokensecret", "secret"), "secret"),
}
_FORM = 'write {"tokenId": "…", "tokenSecret": "…"}, or id.secret'

# -- secrets of the operator


def parse_api_token(text: str, place: str) -> Secret:
    """Parse the bare API token, or JSON with one of the vendor's names. Raises BadInput
    for characters that are invalid in a header. A trailing newline, which editors and
    `base64` add, is removed."""
    token = text.strip()
    if token.startswith(("{", "[", '"')):
        try:
            fields = msgspec.json.decode(text, type=dict[str, str | None])
        except msgspec.ValidationError:
            raise BadInput(place, "is not a mapping of strings", _API_FORM) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise BadInput(place, "is not complete JSON", _API_FORM) from None
        tokens = {
            value.strip()
            for name, value in fields.items()
            if value and name.replace("-", "").replace("_", "").lower() in _API_FIELDS
        }
        if len(tokens) > 1:
            raise BadInput(place, "holds two different API tokens", "keep one of them")
        token = tokens.pop() if tokens else ""
    if not token:
        raise BadInput(place, "holds no API token", _API_FORM)
    if not is_sendable(token, _LONGEST_API_TOKEN):
        raise BadInput(place, "holds an API token with spaces or special characters", _API_FORM)
    return Secret(token)


class Token(msgspec.Struct, frozen=True):
    """A bootstrap token. id: 6 lower-case letters and digits, not secret by itself; secret: 16."""

    id: str
    secret: Secret


def parse_token(text: str, place: str) -> Token:
    """Parse `id.secret`, JSON, or lines NAME=value; all forms of a name are equal (tokenId,
    token-id, BOOTSTRAP_TOKEN_ID). Raises BadInput naming the part, never its value."""
    text = text.strip()
    parts: dict[str, str] = {}
    if text.startswith("{") or "=" in text:
        for name, value in _json_pairs(text, place) if text.startswith("{") else _line_pairs(text):
            field = _FIELDS.get(re.sub(r"[-_\s]", "", name).lower())
            if field is None:
                # a complete copy of a Kubernetes Secret contains usages and groups as well
                continue
            if parts.setdefault(field, value.strip()) != value.strip():
                problem = f"the token's {field} is given twice with different values"
                raise BadInput(place, problem, "keep one of the two")
    else:
        parts["id"], _, parts["secret"] = text.partition(".")
    for part, form, length in (("id", _ID, 6), ("secret", _SECRET, 16)):
        if not parts.get(part):
            raise BadInput(place, f"the token's {part} is missing", _FORM)
        if not re.fullmatch(form, parts[part], re.ASCII):
            raise BadInput(
                place, f"the token's {part} is not {length} small letters and digits", _FORM
            )
    return Token(parts["id"], Secret(parts["secret"]))


def _json_pairs(text: str, place: str) -> Iterable[tuple[str, str]]:
    try:
        fields = msgspec.json.decode(text, type=dict[str, str | bool | int | float | None])
    except msgspec.MsgspecError:
        raise BadInput(place, "is not complete JSON of texts", _FORM) from None
    return [(name, value) for name, value in fields.items() if isinstance(value, str)]


def _line_pairs(text: str) -> Iterable[tuple[str, str]]:
    pairs = (line.partition("=") for line in text.splitlines() if line.strip())
    return [
        (name.strip().removeprefix("export "), value.strip().strip("\"'"))
        for name, _, value in pairs
    ]


# -- sources of bootstrap tokens


class Tokens(Protocol):
    """The bootstrap tokens of one cluster."""

    def current(self) -> Token:
        """Return the token for servers that are ordered now. Called once per order, not
        once per server. Raises ProviderError: Unauthorized if the operator must act,
        Transient if there is no response."""


class SecretTokens:
    """A token in a secret. It is read each time, because servers with a
    replaced token could never join."""

    def __init__(self, read_secret: Callable[[str], str], name: str) -> None:
        self._read_secret, self._name = read_secret, name

    def current(self) -> Token:
        """See Tokens."""
        return as_provider_error(
            lambda: parse_token(read_fresh(self._read_secret, self._name), place_of(self._name))
        )


class NoTokens:
    """No token; its error names the remedy."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def current(self) -> Token:
        """See Tokens."""
        raise Unauthorized(self._problem, code="Credentials")


def random_secret() -> str:
    """Return the secret part of a new token: 16 random letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))


def open_tokens(
    connection: Connection, settings: CherrySettings, *, draw: Callable[[], str] = random_secret
) -> Tokens:
    """Return the token source that the settings select; sends nothing. draw: generates the
    secret part of a new token."""
    bootstrap = settings.bootstrap
    if bootstrap.secret:
        return SecretTokens(connection.read_secret, bootstrap.secret)
    if not bootstrap.create:
        return NoTokens(
            f"{PLACE}.bootstrapTokenSecret: is missing; name a secret, or set "
            "createBootstrapTokens: true"
        )
    if connection.kube is None:
        return NoTokens(
            f"{PLACE}.createBootstrapTokens: there is no cluster to make a token in; see "
            "spec.kubernetes"
        )
    kube = cast(KubeApi, connection.kube)
    return GeneratedTokens(kube, connection.cluster, bootstrap.lifetime, connection.now, draw)


# -- generated bootstrap tokens


class _TokenMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] | None = None


class _TokenSecret(msgspec.Struct, frozen=True):
    metadata: _TokenMeta = _TokenMeta()
    type: str = ""
    data: dict[str, str] | None = None


class Slot(msgspec.Struct, frozen=True):
    """One of our Secrets. version "": it does not exist. ours: it may be overwritten. ends: epoch
    seconds, 0.0 without a usable token."""

    id: str
    version: str = ""
    ours: bool = True
    token: Token | None = None
    ends: float = 0.0


class GeneratedTokens:
    """kube: the cluster that servers join. lifetime: seconds of a new token; draw:
    generates its secret part."""

    def __init__(
        self,
        kube: KubeApi,
        cluster: str,
        lifetime: float,
        now: Callable[[], float],
        draw: Callable[[], str],
    ) -> None:
        self._kube, self._cluster, self._lifetime, self._now, self._draw = (
            kube,
            cluster,
            lifetime,
            now,
            draw,
        )

    def current(self) -> Token:
        """Return a token with at least half of its lifetime left. Raises ProviderError."""
        for _ in range(_ROUNDS):
            slots: list[Slot] = []
            for name in IDS:
                slot = self._read(name)
                if slot.token is not None and slot.ends - self._now() >= self._lifetime / 2:
                    return slot.token
                slots.append(slot)
            free = [slot for slot in slots if slot.ours and slot.ends <= self._now()]
            if not free:
                return _longest(slots)
            try:
                # absent ones first
                return self._write(min(free, key=lambda slot: (bool(slot.version), slot.ends)))
            except (Conflict, NotFound):
                continue  # another function or the cleaner was faster: read again and use its token
        raise Transient("the bootstrap tokens in kube-system change faster than they can be read")

    def _read(self, name: str) -> Slot:
        """Return a Secret; without a token if its contents are damaged, so that it is
        overwritten."""
        try:
            body = self._request("GET", f"{PATH}/bootstrap-token-{name}", None, ())
        except NotFound:
            return Slot(name)
        try:
            stored = msgspec.json.decode(body, type=_TokenSecret)
        except msgspec.MsgspecError:
            raise Transient(
                f"the API server's answer is not a Secret: bootstrap-token-{name}"
            ) from None
        version = stored.metadata.resource_version
        if stored.type != TYPE or LABEL not in (stored.metadata.labels or {}):
            return Slot(name, version, ours=False)
        try:
            data = (stored.data or {}).items()
            texts = {
                key: base64.b64decode(text, validate=True).decode("ascii") for key, text in data
            }
            ends = parse_time(texts.get("expiration", ""))
        except (ValueError, BadInput):
            return Slot(name, version)
        secret = texts.get("token-secret", "")
        usable = texts.get("token-id") == name and re.fullmatch(_SECRET, secret, re.ASCII)
        if not usable or texts.get("usage-bootstrap-authentication") != "true":
            return Slot(name, version)
        return Slot(name, version, token=Token(name, Secret(secret)), ends=ends)

    def _write(self, slot: Slot) -> Token:
        token = Token(slot.id, Secret(self._draw()))
        texts = {
            "token-id": token.id,
            "token-secret": token.secret.reveal(),
            "expiration": format_time(self._now() + self._lifetime),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": GROUPS,
            "description": (
                f"Made by Outscaler for new machines of cluster {self._cluster}; ends by itself."
            ),
        }
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        metadata = {
            "name": f"bootstrap-token-{slot.id}",
            "namespace": "kube-system",
            "labels": {LABEL: "true"},
        }
        if slot.version:
            metadata["resourceVersion"] = slot.version
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": TYPE,
            "metadata": metadata,
            "data": data,
        }
        method, path = (
            ("PUT", f"{PATH}/bootstrap-token-{slot.id}") if slot.version else ("POST", PATH)
        )
        self._request(method, path, body, (token.secret, Secret(data["token-secret"])))
        return token

    def _request(
        self, method: str, path: str, body: object | None, hidden: tuple[Secret, ...]
    ) -> bytes:
        """Send one request. Errors of the cluster are mapped by status and
        do not contain the token."""
        try:
            return (
                self._kube.request(method, path)
                if body is None
                else self._kube.request(method, path, body=body)
            )
        except ProviderError:
            raise
        except OutscalerError as error:
            text, status = str(error), getattr(error, "status", None)
            for secret in hidden:
                text = secret.hidden_in(text)
            hint = f"; {_APPLY}" if status == 403 else ""
            retry_after = float(getattr(error, "retry_after", 0.0) or 0.0)
            message = f"bootstrap token: {method} {path}: {text}{hint}"
            raise class_for(status)(
                message, code=str(status or ""), retry_after=retry_after
            ) from None


def _longest(slots: list[Slot]) -> Token:
    """Return the token with the longest remaining lifetime, if all four are valid
    after a change of lifetime or clock. None of them may be overwritten, because
    servers that are booting use them."""
    valid = [(slot.ends, slot.token) for slot in slots if slot.token is not None]
    if not valid:
        names = ", ".join(f"bootstrap-token-{name}" for name in IDS)
        raise Conflict(f"none of the Secrets {names} in kube-system is ours; delete one of them")
    return max(valid, key=lambda pair: pair[0])[1]
