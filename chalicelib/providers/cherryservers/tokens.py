"""TODO"""

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
from chalicelib.providers.base import Connection
from chalicelib.providers.cherryservers.settings import PLACE, CherrySettings
from chalicelib.providers.credential_source import as_provider_error, read_fresh
from chalicelib.providers.errors import Conflict, NotFound, ProviderError, Transient, Unauthorized, class_for
from chalicelib.providers.kube_protocol import KubeApi

__all__ = ["Token", "Tokens", "open_tokens"]


class Tokens(Protocol):
    """The bootstrap tokens of one cluster."""

    def current(self) -> Token:
        """Return the token for servers that are ordered now. Called once per order, not once per server. Raises
        ProviderError: Unauthorized if the operator must act, Transient if there is no response."""


class KeptTokens:
    """A token in a secret. It is read each time, because servers with a replaced token could never join."""

    def __init__(self, read_secret: Callable[[str], str], name: str) -> None:
        self._read_secret, self._name = read_secret, name

    def current(self) -> Token:
        """See Tokens."""
        return as_provider_error(lambda: parse_token(read_fresh(self._read_secret, self._name), place_of(self._name)))


class NoTokens:
    """No token; its error names the remedy."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def current(self) -> Token:
        """See Tokens."""
        raise Unauthorized(self._problem, code="Credentials")


_ALPHABET = string.ascii_lowercase + string.digits


def by_chance() -> str:
    """Return the secret part of a new token: 16 random letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))


def open_tokens(connection: Connection, settings: CherrySettings, *, draw: Callable[[], str] = by_chance) -> Tokens:
    """Return the token source that the settings select; sends nothing. draw: generates the secret part of a new
    token."""
    bootstrap = settings.bootstrap
    if bootstrap.secret:
        return KeptTokens(connection.read_secret, bootstrap.secret)
    if not bootstrap.create:
        return NoTokens(f"{PLACE}.bootstrapTokenSecret: is missing; name a secret, or set createBootstrapTokens: true")
    if connection.kube is None:
        return NoTokens(f"{PLACE}.createBootstrapTokens: there is no cluster to make a token in; see spec.kubernetes")
    return MadeTokens(cast(KubeApi, connection.kube), connection.cluster, bootstrap.lifetime, connection.now, draw)


ID, SECRET = "[a-z0-9]{6}", "[a-z0-9]{16}"

_FIELDS = {
    "tokenid": "id",
    "bootstraptokenid": "id",
    "id": "id",
    "tokensecret": "secret",
    "bootstraptokensecret": "secret",
    "secret": "secret",
}
_FORM = 'write {"tokenId": "…", "tokenSecret": "…"}, or id.secret'


class Token(msgspec.Struct, frozen=True):
    """id: 6 lower-case letters and digits, not secret by itself; secret: 16."""

    id: str
    secret: Secret


def parse_token(text: str, place: str) -> Token:
    """Parse `id.secret`, JSON, or lines NAME=value; all forms of a name are equal (tokenId, token-id,
    BOOTSTRAP_TOKEN_ID). Raises BadInput naming the part, never its value."""
    written = text.strip()
    pairs = _json(written, place) if written.startswith("{") else _lines(written)
    if pairs is None:
        token_id, _, secret = written.partition(".")
        found = {"id": token_id, "secret": secret}
    else:
        found = _named(pairs, place)
    for part, form in (("id", ID), ("secret", SECRET)):
        if not re.fullmatch(form, found.get(part, ""), re.ASCII):
            length = form[form.index("{") + 1 : -1]
            problem = (
                f"the token's {part} is not {length} small letters and digits"
                if found.get(part)
                else f"the token's {part} is missing"
            )
            raise BadInput(place, problem, _FORM)
    return Token(found["id"], Secret(found["secret"]))


def _named(pairs: Iterable[tuple[str, str]], place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        field = _FIELDS.get(re.sub(r"[-_\s]", "", name).lower())
        if field is None:
            continue  # a complete copy of a Kubernetes Secret contains usages and groups as well
        if found.setdefault(field, value.strip()) != value.strip():
            raise BadInput(place, f"the token's {field} is given twice with different values", "keep one of the two")
    return found


def _json(text: str, place: str) -> Iterable[tuple[str, str]]:
    try:
        fields = msgspec.json.decode(text, type=dict[str, str | bool | int | float | None])
    except msgspec.MsgspecError:
        raise BadInput(place, "is not complete JSON of texts", _FORM) from None
    return [(name, value) for name, value in fields.items() if isinstance(value, str)]


def _lines(text: str) -> Iterable[tuple[str, str]] | None:
    """Return the lines as a mapping; None if the text is not such a list."""
    if "=" not in text:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if line.strip())
    return [(name.strip().removeprefix("export "), value.strip().strip("\"'")) for name, _, value in pairs]


IDS = ("outsc0", "outsc1", "outsc2", "outsc3")
LABEL = "outscaler.dev/bootstrap"
PATH = "/api/v1/namespaces/kube-system/secrets"
TYPE = "bootstrap.kubernetes.io/token"
GROUPS = "system:bootstrappers:kubeadm:default-node-token"

_MANIFEST = "infra/kubernetes/rbac-bootstrap-tokens.yaml"
_ROUNDS = 3


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


# A field's letters in lower case, without dashes and underscores. The vendor's tools differ: cherryctl and upstream
# read CHERRY_AUTH_TOKEN, cherrygo reads CHERRY_API_KEY, upstream's Kubernetes Secret has `authtoken`.
_API_FIELDS = frozenset({"authtoken", "cherryauthtoken", "cherryapikey", "token"})
_API_FORM = 'write the token alone, or {"authToken": "…"}'
_LONGEST = 4096


def parse_api_token(text: str, place: str) -> Secret:
    """Return the token. Raises BadInput for characters that are invalid in a header; no error contains any part of it.
    A trailing newline, which editors and `base64` add, is removed."""
    token = (_of_json(text, place) if text.lstrip().startswith(("{", "[", '"')) else text).strip()
    if not token:
        raise BadInput(place, "holds no API token", _API_FORM)
    if not is_sendable(token, _LONGEST):
        raise BadInput(place, "holds an API token with spaces or special characters", _API_FORM)
    return Secret(token)


def _of_json(text: str, place: str) -> str:
    try:
        fields = msgspec.json.decode(text, type=dict[str, str | None])
    except msgspec.ValidationError:
        raise BadInput(place, "is not a mapping of strings", _API_FORM) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadInput(place, "is not complete JSON", _API_FORM) from None
    found = {
        value.strip()
        for name, value in fields.items()
        if value and name.replace("-", "").replace("_", "").lower() in _API_FIELDS
    }
    if len(found) > 1:
        raise BadInput(place, "holds two different API tokens", "keep one of them")
    return found.pop() if found else ""
