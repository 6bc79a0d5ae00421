"""TODO"""

from __future__ import annotations

import hashlib
import hmac
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from chalicelib.model.secret import Secret
from chalicelib.providers.alicloud.credentials import AlicloudCredential, AlicloudCredentialSource
from chalicelib.providers.alicloud.decoding import (
    Accepted,
    ActivitiesPage,
    ConfigurationsPage,
    GroupsPage,
    InstancesPage,
    InstanceType,
    LaunchTemplateData,
    ScalingActivity,
    ScalingConfiguration,
    ScalingGroup,
    ScalingInstance,
    TypesAnswer,
    Version,
    VersionsPage,
    decode,
    read_each,
    read_groups,
)
from chalicelib.providers.alicloud.endpoints import VERSIONS, Service
from chalicelib.providers.alicloud.error_mapping import Sense, error_for, sense_of
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import InvalidRequest, NotFound, ProviderError, Throttled, Transient
from chalicelib.providers.http import Http, Limits, VendorRequest, VendorResponse
from chalicelib.providers.rate_limit import CallBudget
from chalicelib.providers.services import Cache, ProviderServices

ALGORITHM = "ACS3-HMAC-SHA256"
_UNRESERVED = "-_.~"


def canonical_query(params: Mapping[str, str]) -> str:
    """Return the query sorted by name and percent-encoded according to RFC 3986 (`*` is %2A, a space %20).

    The signed text is also the one that is sent, so no library can encode it differently."""
    return "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(params.items()))


def timestamp(now: float) -> str:
    """Return epoch seconds as `2026-01-15T08:30:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def unsigned_headers(
    *, host: str, action: str, version: str, now: float, nonce: str, body: bytes = b""
) -> dict[str, str]:
    """Return the headers of every call, signed or not."""
    return {
        "host": host,
        "x-acs-action": action,
        "x-acs-content-sha256": hashlib.sha256(body).hexdigest(),
        "x-acs-date": timestamp(now),
        "x-acs-signature-nonce": nonce,
        "x-acs-version": version,
    }


def signed_headers(
    headers: Mapping[str, str],
    query: str,
    *,
    key_id: str,
    key_secret: Secret,
    secret: Secret | None = None,
    method: str = "POST",
) -> dict[str, str]:
    """Return these headers (lower-case names, including `host`) with a session's token and the Authorization header.

    query: canonical_query of what is sent. Every given header is signed, because the vendor requires it of each
    `x-acs-*`, of host and of content-type.
    """
    signed = dict(headers)
    if secret:
        signed |= {"x-acs-accesskey-id": key_id, "x-acs-security-token": secret.reveal()}
    names = ";".join(sorted(signed))
    digest = hashlib.sha256(canonical_request(signed, query, method).encode()).hexdigest()
    wanted = hmac.new(key_secret.reveal().encode(), f"{ALGORITHM}\n{digest}".encode(), hashlib.sha256).hexdigest()
    return signed | {"authorization": f"{ALGORITHM} Credential={key_id},SignedHeaders={names},Signature={wanted}"}


def canonical_request(headers: Mapping[str, str], query: str, method: str = "POST") -> str:
    """Return the text that is hashed: method, path, query, headers, header names, and the hash of the body."""
    lines = [f"{name}:{value.strip()}\n" for name, value in sorted(headers.items())]
    return "\n".join((method, "/", query, "".join(lines), ";".join(sorted(headers)), headers["x-acs-content-sha256"]))


def _encoded(text: str) -> str:
    return quote(text, safe=_UNRESERVED)


T = TypeVar("T")

VENDOR = "alicloud"
LIMITS = Limits(connect=3.0, read=10.0, total=20.0, attempts=3)
_RENEWABLE = frozenset({Sense.KEY, Sense.SESSION})


def new_nonce() -> str:
    """Return 32 random hex digits."""
    return uuid.uuid4().hex


@dataclass
class Line:
    """url: the service's root. budget: None for calls that are too rare to count (STS)."""

    service: Service
    url: str
    source: AlicloudCredentialSource
    means: ProviderServices
    now: Callable[[], float]
    budget: CallBudget | None = None
    new_nonce: Callable[[], str] = new_nonce
    _http: Http | None = field(default=None, init=False, repr=False)
    _used: AlicloudCredential | None = field(default=None, init=False, repr=False)
    _looked_again: bool = field(default=False, init=False, repr=False)  # hint for a credential that lacks a permission

    def call(self, action: str, params: Mapping[str, str], kind: type[T]) -> T:
        """Return the response to one action. Raises ProviderError whose message begins with the action."""
        call = VendorRequest("POST", f"{self.url}/", headers={"x-acs-action": action}, params=dict(params), safe=True)
        try:
            try:
                return self._once(call, kind)
            except ProviderError as error:
                if not self._worth_another(error):
                    raise
                return self._once(call, kind)
        except ProviderError as error:
            raise self._told(error, action) from None

    def expect(self, calls: int) -> None:
        """Announce the number of calls that will follow soon (rate_limit.py)."""
        if self.budget is not None:
            self.budget.expect(calls)

    def _once(self, request: VendorRequest, kind: type[T]) -> T:
        self.source.current()  # this client retries, not the transport, because every attempt needs a new signature
        if self.budget is not None:
            self.budget.take()
        if self._http is None:
            self._http = Http(
                vendor=VENDOR,
                deployment=self.means.deployment,
                sleep=self.means.sleep,
                chance=self.means.chance,
                clock=self.now,
                sign=self._signed,
                explain=self._explained,
                limits=LIMITS,
            )
        try:
            answer = self._http.send(request)
        except Throttled as error:
            if self.budget is not None:
                self.budget.refused(error.retry_after)
            raise
        return decode(answer, kind)

    def _signed(self, request: VendorRequest) -> VendorRequest:
        """Return the request with the query in its URL exactly as signed.

        A library in between may encode `*` or a space differently. The name of the call is taken from the original URL.
        """
        credential = self._used = self.source.current()
        query = canonical_query(request.params)
        headers = unsigned_headers(
            host=urlsplit(self.url).netloc,
            action=request.headers["x-acs-action"],
            version=VERSIONS[self.service],
            now=self.now(),
            nonce=self.new_nonce(),
        ) | {"accept": "application/json"}
        signed = signed_headers(
            headers, query, key_id=credential.key_id.reveal(), key_secret=credential.key_secret, secret=credential.token
        )
        return VendorRequest(request.method, f"{request.url}?{query}", signed, {}, b"", request.safe)

    def _explained(self, response: VendorResponse) -> ProviderError | None:
        """Return the vendor's error. A pause that it names applies to all functions; the transport also sleeps if it is
        short."""
        error = error_for(response)
        if self.budget is not None and isinstance(error, Throttled) and error.retry_after:
            self.budget.refused(error.retry_after)
        return self._clean(error, error.message) if error is not None else None

    def _worth_another(self, error: ProviderError) -> bool:
        """Whether another attempt may succeed, with a different key or with a new time and nonce."""
        sense = sense_of(error.code)
        lacks_a_right = sense is Sense.DENIED and not self._looked_again
        if (sense in _RENEWABLE or lacks_a_right) and self._used is not None:
            self._looked_again = self._looked_again or lacks_a_right
            return self.source.renewed(self._used) is not None
        return sense is Sense.CLOCK

    def _told(self, error: ProviderError, action: str) -> ProviderError:
        """Return the same error with the action in its message."""
        named = error.message.startswith(f"{action}: ")
        return self._clean(error, error.message if named else f"{action}: {error.message}")

    def _clean(self, error: ProviderError, message: str) -> ProviderError:
        """Return the same error with this message and without any part of the credential."""
        code, request_id = error.code, error.request_id
        if self._used is not None:
            message, code, request_id = (self._used.hidden_in(text) for text in (message, code, request_id))
        return type(error)(message, code=code, request_id=request_id, retry_after=error.retry_after)


SIZE = 50  # maximum page size of ESS and ECS lists
MOVED = "ListMoved"  # code for a list that changes while it is read
_MOST_PAGES = 400  # 20,000 items; a scaling group has at most 2,000

Page = tuple[int, list[T]]  # (TotalCount, items on this page)


def pages_of(things: int) -> int:
    """Return the number of pages of a list; an empty list has one."""
    return max(1, -(-things // SIZE))


def read_all(what: str, page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> list[T]:
    """Return all items, each once, in the vendor's order. page: number from 1 -> TotalCount and the items on that page.

    Raises what `page` raises, and Transient for an inconsistent list.
    """
    for _ in range(2):
        totals, found = _pages(page, identity)
        if len(totals) == 1 and len(found) >= min(totals):
            return found
    raise Transient(f"{what}: {len(found)} of {max(totals)} came, the list changes while it is read", code=MOVED)


def read_named(page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> list[T]:
    """Return the found ones of items requested by id, each once.

    If the vendor counts more items than it returns (inactive groups), it is not called again."""
    return _pages(page, identity)[1]


def _pages(page: Callable[[int], Page[T]], identity: Callable[[T], str]) -> tuple[set[int], list[T]]:
    found: dict[str, T] = {}
    totals: set[int] = set()
    for number in range(1, _MOST_PAGES + 1):
        total, things = page(number)
        totals.add(total)
        found.update((identity(thing), thing) for thing in things)
        if number * SIZE >= total or not things:
            break
    return totals, list(found.values())


IDS = 20  # ids of groups, activities or instances per call
_TYPES = 10  # names of instance types per call
_CONFIGURATIONS = 10  # ids of scaling configurations per call
_LONGEST_TOKEN = 64
_DAY = 86400.0
_UNKNOWN_TYPE = 3600.0  # seconds until an unknown instance type is requested again
_MUTABLE = 300.0  # seconds to cache what can change: a configuration, a template's default version

Params = dict[str, str]


class _TooLong(Exception):
    """The list has more pages than the caller accepts."""


class AlicloudApi:
    """ESS and ECS of one region with one credential, for one pass. Every method raises ProviderError.

    key: maps a kind of item to its row in the shared cache; the row name contains account and region.
    """

    def __init__(
        self,
        region: str,
        ess_line: Line,
        ecs_line: Line,
        *,
        cache: Cache,
        key: Callable[[str], str],
        now: Callable[[], float],
    ) -> None:
        self._region, self._ess, self._ecs = region, ess_line, ecs_line
        self._types = TtlCache(cache, lambda: key("types"), InstanceType, now)
        self._configurations = TtlCache(cache, lambda: key("configurations"), ScalingConfiguration, now)
        self._templates = TtlCache(cache, lambda: key("templates"), LaunchTemplateData, now)

    def groups(self, ids: Sequence[str]) -> dict[str, ScalingGroup]:
        """Return scaling groups by id, 20 ids per call. Unknown groups are absent, since the vendor omits them."""
        found: dict[str, ScalingGroup] = {}
        for lot in _lots(ids, IDS):

            def page(number: int, lot: Sequence[str] = lot) -> tuple[int, list[ScalingGroup]]:
                body = self._ess.call(
                    "DescribeScalingGroups", self._paged(number) | _listed("ScalingGroupIds", lot), GroupsPage
                )
                return body.total_count, read_groups(body.scaling_groups)

            wanted = set(lot)
            found |= {
                each.scaling_group_id: each
                for each in read_named(page, lambda each: each.scaling_group_id)
                if each.scaling_group_id in wanted
            }
        return found

    def expect(self, calls: int) -> None:
        """Announce the number of ESS calls that will follow (rate_limit.py). Sends nothing."""
        self._ess.expect(calls)

    def instances(self, group: str, ids: Sequence[str] = ()) -> list[ScalingInstance]:
        """Return all instances of a group, 50 per page. A failed page fails the whole call, so a list is never partial.

        ids: only these, 20 per call, of the group, or of any group if the group is empty. Unknown instances are absent.
        """
        of_group = {"ScalingGroupId": group} if group else {}
        found: list[ScalingInstance] = []
        for lot in _lots(ids, IDS) or [()]:

            def page(number: int, lot: Sequence[str] = lot) -> tuple[int, list[ScalingInstance]]:
                body = self._ess.call(
                    "DescribeScalingInstances",
                    self._paged(number) | of_group | _listed("InstanceIds", lot),
                    InstancesPage,
                )
                return body.total_count, body.scaling_instances

            found += read_all("DescribeScalingInstances", page, lambda each: each.instance_id)
        wanted = frozenset(ids)
        return [each for each in found if each.instance_id in wanted] if ids else found

    def all_instances(self, most: int) -> list[ScalingInstance] | None:
        """Return all instances of the account in this region over all groups, 50 per page, never a partial list.

        None, after the first page, if the list has more than `most` pages."""

        def page(number: int) -> tuple[int, list[ScalingInstance]]:
            body = self._ess.call("DescribeScalingInstances", self._paged(number), InstancesPage)
            if pages_of(body.total_count) > most:
                raise _TooLong
            return body.total_count, body.scaling_instances

        try:
            return read_all("DescribeScalingInstances", page, lambda each: each.instance_id)
        except _TooLong:
            return None

    def configurations(self, ids: Sequence[str]) -> dict[str, ScalingConfiguration]:
        """Return scaling configurations by id, for all groups at once, cached for 5 min. Unknown ones are absent."""

        def ask(lot: Sequence[str]) -> list[ScalingConfiguration]:
            def page(number: int) -> tuple[int, list[ScalingConfiguration]]:
                body = self._ess.call(
                    "DescribeScalingConfigurations",
                    self._paged(number) | _listed("ScalingConfigurationIds", lot),
                    ConfigurationsPage,
                )
                return body.total_count, read_each(body.scaling_configurations, ScalingConfiguration, _configuration)

            return read_named(page, _configuration)

        return _through(
            self._configurations, ids, ask, _configuration, lot=_CONFIGURATIONS, known=_MUTABLE, unknown=0.0
        )

    def activities(self, group: str, *, ids: Sequence[str] = (), limit: int = 50) -> list[ScalingActivity]:
        """Return the newest activities of a group (one page), newest first, or those with these ids."""
        pages = (
            [self._paged(1) | _listed("ScalingActivityIds", lot) for lot in _lots(ids, IDS)]
            if ids
            else [self._paged(1) | {"ScalingGroupId": group, "PageSize": str(max(1, min(limit, SIZE)))}]
        )
        found = [
            each
            for params in pages
            for each in self._ess.call("DescribeScalingActivities", params, ActivitiesPage).scaling_activities
        ]
        return sorted(found, key=lambda each: each.start_time, reverse=True)

    def instance_types(self, names: Sequence[str]) -> dict[str, InstanceType]:
        """Return instance types by name, 10 per call, cached for 24 h. Unknown ones are absent."""

        def ask(lot: Sequence[str]) -> list[InstanceType]:
            params = {"RegionId": self._region} | _listed("InstanceTypes", lot)
            return read_each(
                self._ecs.call("DescribeInstanceTypes", params, TypesAnswer).instance_types, InstanceType, _type_name
            )

        return _through(self._types, names, ask, _type_name, lot=_TYPES, known=_DAY, unknown=_UNKNOWN_TYPE)

    def launch_template(self, template: str, version: str) -> LaunchTemplateData:
        """Return one version of a launch template; "Default" and "Latest" are versions too. Raises NotFound.

        A numbered version never changes and is cached for 24 h; the others can be changed and are cached for 5 min.
        """
        numbered = version.isascii() and version.isdigit()

        def ask(_: Sequence[str]) -> list[LaunchTemplateData]:
            return [self._version(template, version, numbered=numbered).launch_template_data]

        name = f"{template}/{version}"
        return _through(
            self._templates, [name], ask, lambda _: name, lot=1, known=_DAY if numbered else _MUTABLE, unknown=0.0
        )[name]

    def scale(
        self, group: str, kind: str, value: int, *, token: str, at_once: bool, metadata: Mapping[str, str]
    ) -> Accepted:
        """Call ScaleWithAdjustment.

        kind: TotalCapacity or QuantityChangeInCapacity; token: the ClientToken, at most 64 ASCII characters; at_once:
        SyncActivity."""
        return self._ess.call(
            "ScaleWithAdjustment",
            {
                "RegionId": self._region,
                "ScalingGroupId": group,
                "AdjustmentType": kind,
                "AdjustmentValue": str(value),
                "SyncActivity": _truth(at_once),
                "ActivityMetadata": msgspec.json.encode(metadata, order="deterministic").decode(),
                "ClientToken": _token(token),
            },
            Accepted,
        )

    def set_desired(self, group: str, size: int) -> None:
        """Call ModifyScalingGroup for the desired capacity alone. The number is absolute: a repeated call changes
        nothing. ESS takes no ClientToken and no metadata here, and answers without an activity."""
        self._ess.call(
            "ModifyScalingGroup",
            {"RegionId": self._region, "ScalingGroupId": group, "DesiredCapacity": str(size)},
            Accepted,
        )

    def remove(self, group: str, instances: Sequence[str], *, token: str, decrease: bool = True) -> Accepted:
        """Call RemoveInstances for at most 20 instances, with IgnoreInvalidInstance."""
        if not 1 <= len(instances) <= IDS:
            raise InvalidRequest(f"RemoveInstances: {len(instances)} instances in one call, 1 to {IDS} are allowed")
        return self._ess.call(
            "RemoveInstances",
            {
                "RegionId": self._region,
                "ScalingGroupId": group,
                "DecreaseDesiredCapacity": _truth(decrease),
                "IgnoreInvalidInstance": "true",
                "ClientToken": _token(token),
            }
            | _listed("InstanceIds", instances),
            Accepted,
        )

    def _version(self, template: str, version: str, *, numbered: bool) -> Version:
        """Return the version with this number, the default version, or the one with the highest number."""
        chosen = (
            {"LaunchTemplateVersion.1": version}
            if numbered
            else ({"DefaultVersion": "true"} if version in {"", "Default"} else {})
        )

        def page(number: int) -> tuple[int, list[Version]]:
            body = self._ecs.call(
                "DescribeLaunchTemplateVersions",
                self._paged(number) | {"LaunchTemplateId": template} | chosen,
                VersionsPage,
            )
            return body.total_count, body.launch_template_version_sets

        found = read_named(page, lambda each: str(each.version_number))
        if numbered:
            found = [each for each in found if each.version_number in {0, int(version)}]
        elif chosen:
            found = [each for each in found if each.default_version] or found
        if not found:
            raise NotFound(
                f"launch template {template} has no version {version or 'Default'}",
                code="InvalidLaunchTemplateVersion.NotFound",
            )
        return max(found, key=lambda each: each.version_number)

    def _paged(self, number: int) -> Params:
        return {"RegionId": self._region, "PageNumber": str(number), "PageSize": str(SIZE)}


def _through(
    kept: TtlCache[T],
    names: Sequence[str],
    ask: Callable[[Sequence[str]], list[T]],
    name_of: Callable[[T], str],
    *,
    lot: int,
    known: float,
    unknown: float,
) -> dict[str, T]:
    """Return items by name, from the shared cache or the vendor. known, unknown: seconds to cache found and missing
    items."""
    wanted = list(dict.fromkeys(filter(None, names)))
    found = kept.get(wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        came = {name_of(thing): thing for each in _lots(missing, lot) for thing in ask(each)}
        new = {name: came.get(name) for name in missing}
        kept.put(new, known=known, unknown=unknown)
        found |= new
    return {name: thing for name, thing in found.items() if thing is not None}


def _configuration(configuration: ScalingConfiguration) -> str:
    return configuration.scaling_configuration_id


def _type_name(instance_type: InstanceType) -> str:
    return instance_type.instance_type_id


def _lots(names: Sequence[str], size: int) -> list[Sequence[str]]:
    each = list(dict.fromkeys(names))
    return [each[at : at + size] for at in range(0, len(each), size)]


def _listed(name: str, values: Sequence[str]) -> Params:
    return {f"{name}.{number}": value for number, value in enumerate(values, 1)}


def _truth(value: object) -> str:
    return "true" if value else "false"


def _token(token: str) -> str:
    if not (0 < len(token) <= _LONGEST_TOKEN and token.isascii() and token.isprintable()):
        raise InvalidRequest("the client token must be 1 to 64 ASCII characters", code="ClientToken")
    return token
