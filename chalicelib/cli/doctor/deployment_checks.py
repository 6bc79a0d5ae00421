"""Checks of what the deployment keeps: secrets, its webhook, and the volume of each pass."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from urllib.parse import quote, urlsplit

import msgspec

from chalicelib.cli.arguments import store_command
from chalicelib.cli.doctor.finding import DoctorContext, Finding, Severity, finding
from chalicelib.cluster.kubeconfig import from_kubeconfig
from chalicelib.cluster.list_archive import watcher_key
from chalicelib.model.errors import MALFORMED, BadInput, OutscalerError
from chalicelib.model.policy_permissions import DEFAULT_PREFIX
from chalicelib.model.secret import PARAMETER, SecretNotGiven, place_of
from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession
from chalicelib.notify.notification_request import signature
from chalicelib.policy.secret_names import named_by
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.alicloud import credentials as alicloud
from chalicelib.providers.cherryservers import tokens
from chalicelib.providers.cherryservers.definition_reader import from_gcfg
from chalicelib.providers.exoscale import credentials as exoscale
from chalicelib.providers.huaweicloud import credentials as huaweicloud
from chalicelib.runtime.webhook_authentication import SIGNATURE, TIMESTAMP, read_keys, sign

# -- secrets ---------------------------------------------------------------------------------------

Form = Callable[[Policy, str, str], object]
"""(policy, text, place for messages) -> what is parsed; raises BadInput that
quotes no part of the text."""


def _kubeconfig(context: Callable[[Policy], str]) -> Form:
    def parse(policy: Policy, text: str, place: str) -> object:
        insecure = policy.kubernetes.allow_insecure_tls
        return from_kubeconfig(
            text, context=context(policy), place=place, allow_insecure_tls=insecure
        )

    return parse


def _plain(parse: Callable[[str, str], object]) -> Form:
    return lambda _, text, place: parse(text, place)


def _watcher(policy: Policy, text: str, _place: str) -> object:
    return watcher_key(policy.name, text, policy.options.namespace)


def _notices(_policy: Policy, text: str, place: str) -> object:
    try:
        return signature(text, "", "", b"")
    except ValueError:
        raise BadInput(
            place, "is neither text nor whsec_ and base64", "store it as the receiver gave it"
        ) from None


_MANAGEMENT = _kubeconfig(lambda policy: policy.providers["clusterapi"].get("context", ""))
FORMS: Mapping[tuple[str, ...], Form] = MappingProxyType(
    {
        ("kubernetes", "kubeconfigSecret"): _kubeconfig(lambda policy: policy.kubernetes.context),
        # The context is that of the other kubeconfig, where there is one.
        ("kubernetes", "inClusterKubeconfigSecret"): _kubeconfig(
            lambda policy: "" if policy.kubernetes.has_own_way else policy.kubernetes.context
        ),
        ("kubernetes", "watcherSecret"): _watcher,
        ("providers", "clusterapi", "kubeconfigSecret"): _MANAGEMENT,
        ("providers", "clusterapi", "observeSecret"): _MANAGEMENT,
        ("providers", "alicloud", "credentialsSecret"): _plain(alicloud.parse_secret),
        ("providers", "alicloud", "observeSecret"): _plain(alicloud.parse_secret),
        ("providers", "alicloud", "oidcTokenSecret"): _plain(alicloud.parse_oidc_token),
        ("providers", "cherryservers", "credentialsSecret"): _plain(tokens.parse_api_token),
        ("providers", "cherryservers", "observeSecret"): _plain(tokens.parse_api_token),
        ("providers", "cherryservers", "cloudConfigSecret"): _plain(from_gcfg),
        ("providers", "cherryservers", "bootstrapTokenSecret"): _plain(tokens.parse_token),
        ("providers", "exoscale", "credentialsSecret"): _plain(exoscale.parse_secret),
        ("providers", "exoscale", "observeSecret"): _plain(exoscale.parse_secret),
        ("providers", "huaweicloud", "credentialsSecret"): _plain(huaweicloud.parse_secret),
        ("providers", "huaweicloud", "observeSecret"): _plain(huaweicloud.parse_secret),
        ("webhook", "secret"): _plain(read_keys),
        ("notifications", "webhook", "secret"): _notices,
    }
)
"""The form of each secret, by the key that names it: what its user parses it as. Several keys
share a use in the names of secrets (a watcher's key and a kubeconfig, for example), so the use
does not say what a secret is."""


def check_secrets(context: DoctorContext) -> Iterator[Finding]:
    """DR27: secrets that are missing, empty, or of a form that is not read.
    No value is in a finding."""
    for path, name, _ in named_by(context.policy):
        place = ".".join(("spec", *path))
        create = store_command(name, exists=True)
        try:
            text = context.read_secret(name)
        except SecretNotGiven:
            if name in context.replaced:  # the checks of kubeconfigs look at the file
                continue
            fix = f"add --secret {name}=FILE, so that its form is checked"
            yield finding(
                "DR27",
                f"{place_of(name)} is not given",
                severity=Severity.UNASKED,
                fix=fix,
                path=place,
            )
            continue
        except BadInput as error:
            message = f"secret {name} was not read: {error.problem}"
            yield finding("DR27", message, severity=Severity.UNASKED, path=place)
            continue
        except OutscalerError as error:
            yield finding("DR27", f"secret {name} cannot be read: {error}", fix=create, path=place)
            continue
        if not text.strip():
            yield finding("DR27", f"secret {name} is empty", fix=create, path=place)
            continue
        try:
            FORMS[path](context.policy, text, f"secret {name}")
        except BadInput as error:
            where = error.place if name in error.place else f"secret {name}"
            yield finding(
                "DR27", f"{where}: {error.problem}", fix=error.remedy or create, path=place
            )


# -- webhook ---------------------------------------------------------------------------------------

REASON = "OutscalerDoctor"
"""The reason of the event that the check sends. No policy lists it, so the webhook counts
it and requests no pass."""
_BOUNDS = ExchangeBounds(connect=5.0, read=10.0, total=15.0, bytes=2**16)
_LOG = "look at the log of the function behind the API"
_FIXES = {
    401: (
        "store the same secret for the sender and in the policy's webhook secret, and compare the "
        "clocks"
    ),
    403: "remove the authoriser, or the resource policy, from the webhook's route",
    404: "apply the policy first, and compare the address with the deployment's",
    429: _LOG,
}


class _WebhookAnswer(msgspec.Struct, frozen=True):
    accepted: int = -1
    matched: int = -1
    woken: bool = True


def check_webhook(context: DoctorContext) -> Iterator[Finding]:
    """DR28: the webhook at context.webhook_url does not accept a signed event."""
    name, secret = context.policy.name, context.policy.webhook.secret
    unasked = ("", "")
    if not context.webhook_url:
        if secret:
            unasked = (
                "the webhook was not asked",
                f"give its address: --webhook {context.api or 'URL'}",
            )
    elif not secret:
        text = f"the policy of {name} has no webhook secret, so the webhook accepts no events"
        prefix = (
            context.policy.kubernetes.kubeconfig_secret.rpartition(f"{name}/")[0]
            or PARAMETER + DEFAULT_PREFIX
        )
        yield finding("DR28", text, fix=f"spec.webhook: {{secret: {prefix}{name}/webhook}}")
    else:
        try:
            keys = read_keys(context.read_secret(secret), secret)
        except OutscalerError as error:
            unasked = (f"the webhook's secret was not read: {error}", "--secret NAME=FILE")
        else:
            if keys.hmac:
                yield from _send_event(context, keys.hmac[0])
            else:
                unasked = ("the webhook's secret has no key for signatures", "add one as hmac")
    if unasked[0]:
        yield finding("DR28", unasked[0], severity=Severity.UNASKED, fix=unasked[1])


def _send_event(context: DoctorContext, key: bytes) -> Iterator[Finding]:
    name, now = context.policy.name, str(int(context.clock()))
    event = {
        "kind": "Event",
        "reason": REASON,
        "type": "Normal",
        "message": "sent by outscaler doctor",
    }
    body = json.dumps(event).encode()
    headers = {
        "Content-Type": "application/json",
        TIMESTAMP: now,
        SIGNATURE: sign(key, name, now, body),
    }
    url = f"{context.webhook_url.rstrip('/')}/clusters/{quote(name, safe='')}/events"
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # a bracket that is not closed
        scheme = ""
    if scheme not in ("https", "http"):
        remedy = "write it like https://ID.execute-api.REGION.amazonaws.com/api"
        raise BadInput("--webhook", "is not an address", remedy)
    session = BoundedSession()
    session.mount(f"{scheme}://", BoundedAdapter(ssl.create_default_context))
    try:
        answer = exchange(session, Request("POST", url, headers, {}, body), _BOUNDS)
    except NoReply as error:
        text = f"{url}: {error.words}"
        yield finding("DR28", text, fix="correct the address, and look at the function's log")
        return
    finally:
        session.close()
    if answer.status != 202:
        yield finding("DR28", f"{url} answers {answer.status}", fix=_FIXES.get(answer.status, _LOG))
        return
    try:
        decoded = msgspec.json.decode(answer.body, type=_WebhookAnswer)
    except MALFORMED:
        decoded = _WebhookAnswer()
    if decoded != _WebhookAnswer(accepted=1, matched=0, woken=False):
        yield finding("DR28", f"{url} is not the webhook of Outscaler")


# -- volume ----------------------------------------------------------------------------------------

MONTH = 30 * 86400.0
POD, NODE = 7_900, 25_000
"""Bytes of a pod and of a node in a list, as measured with a real control plane."""
MUCH = 2**40
"""Bytes a month from which the volume of lists is a warning."""
_PRICE = 0.09  # USD per GiB that leaves a cloud's network, a common list price


def check_volume(context: DoctorContext) -> Iterator[Finding]:
    """DR29: bytes that passes read, estimated from the numbers of pods and nodes."""
    snapshot = context.required_snapshot
    size = len(snapshot.pods) * POD + len(snapshot.nodes) * NODE
    monthly = size * MONTH / context.policy.scan_interval
    if monthly < MUCH:
        return
    text = (
        f"a pass reads about {size / 2**20:.0f} MiB ({len(snapshot.pods)} pods): every "
        f"{context.policy.scan_interval:.0f} s that is {monthly / 2**40:.1f} TiB a month"
    )
    fix = (
        "raise scanInterval and use the webhook; at 0.09 USD a GiB this is about "
        f"{monthly / 2**30 * _PRICE:,.0f} USD where traffic is charged"
    )
    yield finding("DR29", text, fix=fix, bytes=size, bytesPerMonth=round(monthly))
