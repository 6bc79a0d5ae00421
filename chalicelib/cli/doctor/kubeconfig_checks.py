"""Checks of the kubeconfig that the functions will use: its address, its login, the end
of its token, and clocks.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.model.errors import MALFORMED
from chalicelib.model.timestamps import format_time, parse_time
from chalicelib.net.addresses import address_of
from chalicelib.net.safe_yaml import parsed

DAY = 86400.0
TOKEN_SOON, CERTIFICATE_SOON = 7 * DAY, 30 * DAY
"""Seconds before its end at which a credential is a warning."""
CLOCK_WARNING, CLOCK_ERROR = 30.0, 300.0
"""Seconds of difference between clocks. Vendors refuse signatures at 15
minutes, the webhook at 5."""
# Two times in a row are a certificate's validity (RFC 5280, 4.1.2.5): UTCTime or GeneralizedTime.
_VALIDITY = re.compile(
    rb"(?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\x0d|\x18\x0f)(\d{12}Z|\d{14}Z)"
)
_INSIDE = (".local", ".svc", ".internal", ".cluster.local")
_DAMAGED: tuple[type[Exception], ...] = (yaml.YAMLError, *MALFORMED)
_DAMAGED_TOKEN: tuple[type[Exception], ...] = (binascii.Error, ValueError, *MALFORMED)


class _Claims(msgspec.Struct, frozen=True):
    exp: float | None = None
    bound: dict[str, Any] | None = msgspec.field(default=None, name="kubernetes.io")


def private_address(server: str) -> str:
    """Return why a function outside the cluster's network cannot reach that URL; "" if it may."""
    host = urlsplit(server).hostname or ""
    address = address_of(host)
    private = address is not None and (
        address.is_private or address.is_loopback or address.is_link_local
    )
    if private or host == "localhost" or host.endswith(_INSIDE):
        return (
            f"the API server {server} has a private address: functions outside its network cannot "
            "reach it"
        )
    return ""


def check_address(context: DoctorContext) -> Iterator[Finding]:
    """DR01: an address that functions cannot reach."""
    for client in (context.workload, context.management):
        if (
            not context.vpc
            and client is not None
            and (problem := private_address(client.server()[0]))
        ):
            yield finding("DR01", problem)


def check_login(context: DoctorContext) -> Iterator[Finding]:
    """DR02: a login that needs a program, or files of the workstation."""
    user, cluster = _current(context.kubeconfig_text)
    uses = []
    if isinstance(plugin := user.get("exec"), Mapping):
        uses.append(f"exec plugin {str(plugin.get('command', ''))[:60]}")
    if isinstance(provider := user.get("auth-provider"), Mapping):
        uses.append(f"auth provider {str(provider.get('name', ''))[:60]}")
    uses += [
        f"the file of {key}"
        for key in ("client-certificate", "client-key", "tokenFile")
        if user.get(key)
    ]
    uses += ["the file of certificate-authority"] if cluster.get("certificate-authority") else []
    if uses:
        yield finding(
            "DR02", f"the kubeconfig uses {', '.join(uses)}, which functions do not have", uses=uses
        )


def check_ends(context: DoctorContext) -> Iterator[Finding]:
    """DR03: a token or client certificate that ends. The token's signature is not verified."""
    user, _ = _current(context.kubeconfig_text)
    now = context.clock()
    token, certificate = user.get("token"), user.get("client-certificate-data")
    if isinstance(token, str) and token:
        yield from _token_end(token, now)
    if isinstance(certificate, str) and certificate:
        yield from _certificate_end(certificate, now)


def _token_end(token: str, now: float) -> Iterator[Finding]:
    parts = token.split(".")
    try:
        claims = (
            base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
            if len(parts) == 3
            else b""
        )
        decoded = msgspec.json.decode(claims, type=_Claims)
    except _DAMAGED_TOKEN:
        text = "the token is not a JWT: its end is not known"
        yield finding("DR03", text, severity=Severity.INFO, fix="nothing to do")
        return
    owners = [kind for kind in ("pod", "node") if kind in (decoded.bound or {})]
    if owners:
        yield finding("DR03", f"the token is bound to a {owners[0]} and ends with it")
    if decoded.exp is not None:
        yield from _credential_end("the token", decoded.exp, now, TOKEN_SOON)


def _certificate_end(data: str, now: float) -> Iterator[Finding]:
    try:
        der = ssl.PEM_cert_to_DER_cert(base64.b64decode(data, validate=True).decode("ascii"))
    except (binascii.Error, ValueError):
        return
    if match := _VALIDITY.search(der):
        digits = match[1].decode()
        year = (
            digits[:-11]
            if len(digits) == 15
            else f"{'19' if digits[0] >= '5' else '20'}{digits[:2]}"
        )
        date = digits[-11:]
        end = f"{year}-{date[:2]}-{date[2:4]}T{date[4:6]}:{date[6:8]}:{date[8:10]}Z"
        yield from _credential_end("the client certificate", parse_time(end), now, CERTIFICATE_SOON)


def _credential_end(credential: str, end: float, now: float, soon: float) -> Iterator[Finding]:
    seconds, text = end - now, f"{credential} ends {format_time(end)}"
    if seconds <= 0:
        yield finding("DR03", f"{credential} ended {format_time(end)}")
    elif seconds <= DAY:
        yield finding("DR03", f"{text}, in {seconds / 3600:.0f} h")
    elif seconds <= soon:
        yield finding("DR03", f"{text}, in {seconds / DAY:.0f} days", severity=Severity.WARNING)


def check_clocks(context: DoctorContext) -> Iterator[Finding]:
    """DR06: the clock of the API server against this computer's."""
    server = context.cluster.server_time()
    if server is None:
        text = "the API server does not state its time"
        yield finding("DR06", text, severity=Severity.UNASKED, fix="nothing to do")
        return
    difference = abs(server - context.clock())
    if difference >= CLOCK_WARNING:
        severity = Severity.ERROR if difference > CLOCK_ERROR else Severity.WARNING
        text = f"the clocks of the API server and of this computer differ by {difference:.0f} s"
        yield finding("DR06", text, severity=severity, seconds=round(difference))


def _current(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the user and the cluster of the current context; empty where the text has none."""
    try:
        document = parsed(text)
    except _DAMAGED:
        document = None
    if not isinstance(document, dict):
        return {}, {}
    context = _named(document, "contexts", document.get("current-context"), "context")
    return (
        _named(document, "users", context.get("user"), "user"),
        _named(document, "clusters", context.get("cluster"), "cluster"),
    )


def _named(document: Mapping[str, Any], section: str, name: object, key: str) -> Mapping[str, Any]:
    entries = document.get(section)
    for entry in entries if isinstance(entries, list) else ():
        if (
            isinstance(entry, dict)
            and entry.get("name") == name
            and isinstance(entry.get(key), dict)
        ):
            content: Mapping[str, Any] = entry[key]
            return content
    return {}
