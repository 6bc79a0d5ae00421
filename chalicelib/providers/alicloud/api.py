"""The vendor calls that this provider makes, and the signed RPC client and the paging behind them.

Each call is a POST with all parameters in the query and an empty body, signed with
ACS3-HMAC-SHA256, the vendor's current signature. Temporary errors are tried three times, and each
attempt is signed again with a new time and nonce and the same ClientToken, which the vendor
recognises as the same request. One more attempt follows if the key or session has been replaced or
a time or nonce was refused. Repeating is safe: reads have no effect, and writes carry a ClientToken
that stays the same, except for RebootInstance, which is repeated by its operation only
(restart.py).

Paged lists are read completely or not at all. Instances of a group may appear and disappear between
two page requests, and then an instance can move from an unread page to one that was already read. A
list is accepted if every page reports the same total and that many items arrived. Otherwise it is
read once more, and after that the call fails, because a partial list would make nodes look
unmanaged. Items requested by id need no such check: the caller sees which are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from chalicelib.providers.alicloud import decoding
from chalicelib.providers.alicloud.credentials import (
    LIMITS,
    AlicloudCredential,
    AlicloudCredentialSource,
)
from chalicelib.providers.alicloud.decoding import (
    Accepted,
    EcsInstance,
    InstanceType,
    LaunchTemplateData,
    ScalingActivity,
    ScalingConfiguration,
    ScalingGroup,
    ScalingInstance,
    Version,
)
from chalicelib.providers.alicloud.error_mapping import Sense, error_for, is_denied, sense_of
from chalicelib.providers.alicloud.settings import PROVIDER, VERSIONS, Service
from chalicelib.providers.alicloud.signing import (
    canonical_query,
    new_nonce,
    signed_headers,
    unsigned_headers,
)
from chalicelib.providers.alicloud.vswitches import SwitchZones
from chalicelib.providers.kit.errors import InvalidRequest, NotFound, ProviderError, Transient
from chalicelib.providers.kit.http import Http, Limits, VendorRequest, VendorResponse
from chalicelib.providers.kit.price_reader import PriceReader, VendorPrice
from chalicelib.providers.kit.rate_limit import CallPace
from chalicelib.providers.kit.services import Cache, ProviderServices, TtlCache

T = TypeVar("T")

SIZE = 50  # maximum page size of ESS and ECS lists
MOVED = "ListMoved"  # code for a list that changes while it is read
IDS = 20  # ids of groups, activities or instances per call
_MOST_PAGES = 400  # 20,000 items; a scaling group has at most 2,000
_TYPES = 10  # names of instance types per call
_CONFIGURATIONS = 10  # ids of scaling configurations per call
_LONGEST_TOKEN = 64
_DAY = 86400.0
_UNKNOWN_TYPE = 3600.0  # seconds until an unknown instance type is requested again
_RECHECK = 600.0  # seconds until a missing permission is looked for again
_MUTABLE = 300.0  # seconds to cache what can change: a configuration, a template's default version

_PER_PAGE = 100  # instances on a page of ECS
_LOCKED_PAGES = 20  # 2,000 instances that ECS takes back at the same time

PRICE_PERMISSION, ADVICE_PERMISSION = "ecs:DescribePrice", "ecs:DescribeSpotAdvice"
INSTANCES_PERMISSION = "ecs:DescribeInstances"
_PASSED = "DryRunOperation"  # the code with which a dry run says that the call would be carried out


class PricedMachine(NamedTuple):
    """What a price depends on besides the region. spot: the strategy of a preemptible instance, ""
    for another; zone: given for preemptible instances only, whose prices vary between zones."""

    type: str
    spot: str = ""
    zone: str = ""


# -- client


@dataclass
class Line:
    """The signed RPC client of one product in one region. url: the service's root. pace: None for
    calls that are too rare to count (STS). limits: of one call."""

    service: Service
    url: str
    source: AlicloudCredentialSource
    services: ProviderServices
    now: Callable[[], float]
    pace: CallPace | None = None
    new_nonce: Callable[[], str] = new_nonce
    limits: Limits = LIMITS
    _http: Http | None = field(default=None, init=False, repr=False)
    _used: AlicloudCredential | None = field(default=None, init=False, repr=False)
    # hint for a credential that lacks a permission
    _looked_again: bool = field(default=False, init=False, repr=False)

    def call(
        self, action: str, params: Mapping[str, str], kind: type[T], *, safe: bool = True
    ) -> T:
        """Return the response to one action. kind: the type of the response. safe: it may be
        repeated. Raises ProviderError whose message begins with the action."""
        call = VendorRequest(
            "POST", f"{self.url}/", headers={"x-acs-action": action}, params=dict(params), safe=safe
        )
        http = self._open()
        try:
            try:
                self.source.current()
                return decoding.decode(http.send(call), kind)
            except ProviderError as error:
                if not self._is_worth_another(error):
                    raise
                return decoding.decode(http.send(call), kind)
        except ProviderError as error:
            named = error.message.startswith(f"{action}: ")
            raise self._cleaned(
                error, error.message if named else f"{action}: {error.message}"
            ) from None

    def expect(self, calls: int) -> None:
        """Announce the number of calls that will follow soon (kit/rate_limit.py)."""
        if self.pace is not None:
            self.pace.expect(calls)

    def _open(self) -> Http:
        if self._http is None:
            self._http = Http(
                PROVIDER,
                self.services,
                self.now,
                sign=self._signed,
                explain=self._explained,
                pace=self.pace,
                limits=self.limits,
            )
        return self._http

    def _signed(self, request: VendorRequest) -> VendorRequest:
        """Return the request with the query in its URL exactly as signed. A library in between may
        encode `*` or a space differently. The name of the call is taken from the original URL."""
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
            headers,
            query,
            key_id=credential.key.reveal(),
            key_secret=credential.secret,
            secret=credential.token,
        )
        return VendorRequest(
            request.method, f"{request.url}?{query}", signed, {}, b"", request.safe
        )

    def _explained(self, response: VendorResponse) -> ProviderError | None:
        error = error_for(response)
        return self._cleaned(error, error.message) if error is not None else None

    def _is_worth_another(self, error: ProviderError) -> bool:
        """Whether another attempt may succeed, with a different key or with a new time and
        nonce."""
        sense = sense_of(error.code)
        denied = sense is Sense.DENIED and not self._looked_again
        if self._used is not None and (denied or sense in {Sense.KEY, Sense.SESSION}):
            self._looked_again = self._looked_again or denied
            return self.source.renewed(self._used) is not None
        return sense is Sense.CLOCK

    def _cleaned(self, error: ProviderError, message: str) -> ProviderError:
        """Return the same error with this message and without any part of the credential."""
        code, request_id = error.code, error.request_id
        if self._used is not None:
            message, code, request_id = (
                self._used.hidden_in(text) for text in (message, code, request_id)
            )
        return type(error)(message, code=code, request_id=request_id, retry_after=error.retry_after)


# -- paging

Params = dict[str, str]
Pages = Callable[[int], tuple[int, list[T]]]
"""Number of a page, from 1 -> TotalCount and the items on that page."""


class _PageBody(Protocol):
    @property
    def total_count(self) -> int: ...

    @property
    def items(self) -> list[Any]: ...


class _TooLong(Exception):
    """The list has more pages than the caller accepts."""


def pages_of(count: int) -> int:
    """Return the number of pages of a list; an empty list has one."""
    return max(1, -(-count // SIZE))


def _read_all(
    action: str, pages: Pages[T], name_of: Callable[[T], str], most: int | None = None
) -> list[T]:
    """Return all items, each once, in the vendor's order. Raises what `pages` raises,
    Transient for an inconsistent list, and _TooLong after the first page of a list
    with more than `most` pages."""
    for _ in range(2):
        totals, items = _read_pages(pages, name_of, most)
        if len(totals) == 1 and len(items) >= min(totals):
            return items
    raise Transient(
        f"{action}: {len(items)} of {max(totals)} came, the list changes while it is read",
        code=MOVED,
    )


def _read_pages(
    pages: Pages[T], name_of: Callable[[T], str], most: int | None = None
) -> tuple[set[int], list[T]]:
    """Return the totals that the pages report, and the items, each once. For items requested by id
    the vendor may count more than it returns (inactive groups)."""
    items: dict[str, T] = {}
    totals: set[int] = set()
    for number in range(1, _MOST_PAGES + 1):
        total, page = pages(number)
        if most is not None and pages_of(total) > most:
            raise _TooLong
        totals.add(total)
        items.update((name_of(item), item) for item in page)
        if number * SIZE >= total or not page:
            break
    return totals, list(items.values())


# -- calls


class AlicloudApi:
    """ESS, ECS and VPC of one region with one credential, for one pass. Every method raises
    ProviderError. price_line, vpc_line: with narrower limits. key: maps a kind of item to its row
    in the shared cache; the row name contains account and region."""

    def __init__(
        self,
        region: str,
        ess_line: Line,
        ecs_line: Line,
        price_line: Line,
        vpc_line: Line,
        *,
        cache: Cache,
        key: Callable[[str], str],
        now: Callable[[], float],
    ) -> None:
        self._region, self._ess, self._ecs, self._prices = region, ess_line, ecs_line, price_line
        self._vpc, self._zones = vpc_line, TtlCache(cache, lambda: key("vswitch-zones"), str, now)
        self._price_cache, self.now = TtlCache(cache, lambda: key("prices"), VendorPrice, now), now
        self._rates = TtlCache(cache, lambda: key("interruption-rates"), VendorPrice, now)
        self._rights = TtlCache(cache, lambda: key("rights"), str, now)
        self._types = TtlCache(cache, lambda: key("types"), InstanceType, now)
        self._configurations = TtlCache(
            cache, lambda: key("configurations"), ScalingConfiguration, now
        )
        self._templates = TtlCache(cache, lambda: key("templates"), LaunchTemplateData, now)

    def groups(self, ids: Sequence[str]) -> dict[str, ScalingGroup]:
        """Return scaling groups by id, 20 ids per call. Unknown groups are absent,
        since the vendor omits them."""
        groups: dict[str, ScalingGroup] = {}
        for lot in _lots(ids, IDS):
            pages = self._pages(
                self._ess,
                "DescribeScalingGroups",
                _listed("ScalingGroupIds", lot),
                decoding.GroupsPage,
                decoding.read_groups,
            )
            _, listed = _read_pages(pages, lambda group: group.scaling_group_id)
            groups |= {
                group.scaling_group_id: group for group in listed if group.scaling_group_id in lot
            }
        return groups

    def expect(self, calls: int) -> None:
        """Announce the number of ESS calls that will follow (kit/rate_limit.py). Sends nothing."""
        self._ess.expect(calls)

    def instances(self, group: str, ids: Sequence[str] = ()) -> list[ScalingInstance]:
        """Return all instances of a group, 50 per page. A failed page fails the whole call, so a
        list is never partial. ids: only these, 20 per call, of the group, or of any group if the
        group is empty. Unknown instances are absent."""
        of_group = {"ScalingGroupId": group} if group else {}
        instances: list[ScalingInstance] = []
        for lot in _lots(ids, IDS) or [()]:
            instances += self._instances(of_group | _listed("InstanceIds", lot))
        named = frozenset(ids)
        return (
            [instance for instance in instances if instance.instance_id in named]
            if ids
            else instances
        )

    def all_instances(self, most: int) -> list[ScalingInstance] | None:
        """Return all instances of the account in this region over all groups, 50 per page, never a
        partial list. None, after the first page, if the list has more than `most` pages."""
        try:
            return self._instances({}, most)
        except _TooLong:
            return None

    def _instances(self, params: Params, most: int | None = None) -> list[ScalingInstance]:
        action = "DescribeScalingInstances"
        pages: Pages[ScalingInstance] = self._pages(
            self._ess, action, params, decoding.InstancesPage, list
        )
        return _read_all(action, pages, lambda instance: instance.instance_id, most)

    def configurations(self, ids: Sequence[str]) -> dict[str, ScalingConfiguration]:
        """Return scaling configurations by id, for all groups at once, cached for 5 min.
        Unknown ones are absent."""

        def name_of(configuration: ScalingConfiguration) -> str:
            return configuration.scaling_configuration_id

        def request(lot: Sequence[str]) -> list[ScalingConfiguration]:
            pages = self._pages(
                self._ess,
                "DescribeScalingConfigurations",
                _listed("ScalingConfigurationIds", lot),
                decoding.ConfigurationsPage,
                lambda items: decoding.read_each(items, ScalingConfiguration, name_of),
            )
            return _read_pages(pages, name_of)[1]

        return _through(
            self._configurations,
            ids,
            request,
            name_of,
            lot=_CONFIGURATIONS,
            known=_MUTABLE,
            unknown=0.0,
        )

    def activities(
        self, group: str, *, ids: Sequence[str] = (), limit: int = SIZE
    ) -> list[ScalingActivity]:
        """Return the newest activities of a group (one page), newest first,
        or those with these ids."""
        pages = [_listed("ScalingActivityIds", lot) for lot in _lots(ids, IDS)]
        if not ids:
            pages = [{"ScalingGroupId": group, "PageSize": str(max(1, min(limit, SIZE)))}]
        found = [
            activity
            for params in pages
            for activity in self._ess.call(
                "DescribeScalingActivities", self._page(1) | params, decoding.ActivitiesPage
            ).items
        ]
        return sorted(found, key=lambda activity: activity.start_time, reverse=True)

    def instance_types(self, names: Sequence[str]) -> dict[str, InstanceType]:
        """Return instance types by name, 10 per call, cached for 24 h. Unknown ones are absent."""

        def name_of(instance_type: InstanceType) -> str:
            return instance_type.instance_type_id

        def request(lot: Sequence[str]) -> list[InstanceType]:
            params = {"RegionId": self._region} | _listed("InstanceTypes", lot)
            answer = self._ecs.call("DescribeInstanceTypes", params, decoding.TypesAnswer)
            return decoding.read_each(answer.instance_types, InstanceType, name_of)

        return _through(
            self._types, names, request, name_of, lot=_TYPES, known=_DAY, unknown=_UNKNOWN_TYPE
        )

    def prices(
        self, machines: Sequence[PricedMachine]
    ) -> tuple[dict[PricedMachine, VendorPrice], str]:
        """Return the hourly price of each machine, and why the key may not read prices
        ("" if it may). Never raises. Prices are cached for six hours, those of
        preemptible instances for one."""

        by_name = {"|".join(machine): machine for machine in machines}
        reader = PriceReader(
            self._price_cache,
            lambda name: self._price(by_name[name]),
            self.now,
            permission=PRICE_PERMISSION,
        )
        prices = reader.read(
            by_name, spot=[name for name, machine in by_name.items() if machine.spot]
        )
        return {by_name[name]: price for name, price in prices.items()}, reader.denied

    def _price(self, machine: PricedMachine) -> tuple[float, str] | None:
        params = {
            "RegionId": self._region,
            "ResourceType": "instance",
            "InstanceType": machine.type,
            "PriceUnit": "Hour",
            "Period": "1",
        }
        if machine.spot:
            params |= {"SpotStrategy": machine.spot, "ZoneId": machine.zone}
        return self._prices.call("DescribePrice", params, decoding.PriceAnswer).hourly

    def interruption_rates(
        self, machines: Sequence[PricedMachine]
    ) -> tuple[dict[PricedMachine, float], str]:
        """Return the share of such preemptible instances that ECS takes back in a month, 0.0 if it
        states none, and why the key may not read that ("" if it may). Never raises. Read and cached
        as prices are, for six hours."""
        by_name = {f"{machine.type}|{machine.zone}": machine for machine in machines}

        def ask(name: str) -> tuple[float, str] | None:
            rate = self._advice(by_name[name]).rate(by_name[name].type, by_name[name].zone)
            return (rate, "") if rate else None

        reader = PriceReader(
            self._rates,
            ask,
            self.now,
            permission=ADVICE_PERMISSION,
            subject="interruption rates of spot instances",
        )
        rates = reader.read(by_name)
        shares = {machine: rates[f"{machine.type}|{machine.zone}"].price for machine in machines}
        return shares, reader.denied

    def _advice(self, machine: PricedMachine) -> decoding.SpotAdvice:
        params = {"RegionId": self._region, "InstanceTypes.1": machine.type}
        zone = {"ZoneId": machine.zone} if machine.zone else {}
        return self._prices.call("DescribeSpotAdvice", params | zone, decoding.SpotAdvice)

    def switch_zones(self, ids: Iterable[str]) -> tuple[dict[str, str], str]:
        """Return VSwitch -> zone as far as zones are known, and why the key may not read them (""
        if it may). Never raises. One call per VSwitch, cached for a week."""
        reader = SwitchZones(self._zones, self._switch_zone, self.now)
        zones = reader.read(ids)
        return zones, reader.denied

    def _switch_zone(self, switch_id: str) -> str:
        answer = self._vpc.call(
            "DescribeVSwitches",
            {"RegionId": self._region, "VSwitchId": switch_id},
            decoding.VSwitchesAnswer,
        )
        listed = decoding.read_each(
            answer.v_switches, decoding.VSwitch, lambda switch: switch.v_switch_id
        )
        return next((switch.zone_id for switch in listed if switch.v_switch_id == switch_id), "")

    def taken_back(self) -> frozenset[str]:
        """Return the instances of the region that ECS has announced to take back, of all groups and
        clusters, 100 per call; at most 2,000."""
        params, token, instances = {"LockReason": "Recycling"}, "", list[EcsInstance]()
        for _ in range(_LOCKED_PAGES):
            page = self._ecs_instances(params | ({"NextToken": token} if token else {}))
            instances += decoding.read_each(
                page.instances, EcsInstance, lambda instance: instance.instance_id
            )
            token = page.next_token
            if not token:
                break
        return frozenset(instance.instance_id for instance in instances if instance.is_taken_back)

    def instances_refusal(self) -> str:
        """Return why the key may not call DescribeInstances; "" if it may. ECS answers such a key
        with an empty list instead of an error, and tells the two apart in a dry run only. The
        answer is cached for six hours, and for ten minutes if the key may not."""
        cached = self._rights.get([INSTANCES_PERMISSION]).get(INSTANCES_PERMISSION)
        if cached is not None:
            return cached
        denied = ""
        try:
            self._ecs_instances({"DryRun": "true"})
        except ProviderError as error:
            if is_denied(error):
                denied = (
                    "the key may not read which instances ECS takes back (it needs "
                    f"{INSTANCES_PERMISSION})"
                )
            elif error.code != _PASSED:
                raise
        self._rights.put(
            {INSTANCES_PERMISSION: denied}, known=_RECHECK if denied else _DAY / 4, unknown=0.0
        )
        return denied

    def ecs_instance(self, instance_id: str) -> EcsInstance | None:
        """Return an instance as ECS describes it; None if ECS does not list it, or not to this
        key."""
        page = self._ecs_instances({"InstanceIds": msgspec.json.encode([instance_id]).decode()})
        listed = decoding.read_each(
            page.instances, EcsInstance, lambda instance: instance.instance_id
        )
        return next((instance for instance in listed if instance.instance_id == instance_id), None)

    def _ecs_instances(self, params: Params) -> decoding.EcsInstancesPage:
        region = {"RegionId": self._region, "MaxResults": str(_PER_PAGE)}
        return self._ecs.call("DescribeInstances", region | params, decoding.EcsInstancesPage)

    def reboot(self, instance: str) -> None:
        """Call RebootInstance, with ForceStop: as if its power was switched off and on.
        ECS takes no ClientToken."""
        self._ecs.call(
            "RebootInstance", {"InstanceId": instance, "ForceStop": "true"}, Accepted, safe=False
        )

    def launch_template(self, template: str, version: str) -> LaunchTemplateData:
        """Return one version of the launch template with this id; "Default" and "Latest" are
        versions too. Raises NotFound. A numbered version never changes and is cached for 24 h; the
        others can be changed and are cached for 5 min."""
        numbered = version.isascii() and version.isdigit()
        name = f"{template}/{version}"

        def request(_: Sequence[str]) -> list[LaunchTemplateData]:
            return [self._version(template, version, numbered=numbered).launch_template_data]

        known = _DAY if numbered else _MUTABLE
        return _through(
            self._templates, [name], request, lambda _: name, lot=1, known=known, unknown=0.0
        )[name]

    def scale(
        self,
        group: str,
        adjustment: str,
        value: int,
        *,
        token: str,
        at_once: bool,
        metadata: Mapping[str, str],
    ) -> Accepted:
        """Call ScaleWithAdjustment. adjustment: TotalCapacity or QuantityChangeInCapacity; token:
        the ClientToken, at most 64 ASCII characters; at_once: SyncActivity, the
        activity starts now; otherwise only the desired number changes."""
        params = {
            "RegionId": self._region,
            "ScalingGroupId": group,
            "AdjustmentType": adjustment,
            "AdjustmentValue": str(value),
            "SyncActivity": "true" if at_once else "false",
            "ActivityMetadata": msgspec.json.encode(metadata, order="deterministic").decode(),
            "ClientToken": _checked_token(token),
        }
        return self._ess.call("ScaleWithAdjustment", params, Accepted)

    def set_desired(self, group: str, size: int) -> None:
        """Call ModifyScalingGroup for the desired capacity alone. The number is absolute: a
        repeated call changes nothing. ESS takes no ClientToken and no metadata here, and
        answers without an activity."""
        params = {"RegionId": self._region, "ScalingGroupId": group, "DesiredCapacity": str(size)}
        self._ess.call("ModifyScalingGroup", params, Accepted)

    def remove(
        self, group: str, instances: Sequence[str], *, token: str, decrease: bool = True
    ) -> Accepted:
        """Call RemoveInstances for at most 20 instances, with IgnoreInvalidInstance. decrease: the
        desired capacity falls by as many, so that ESS replaces none."""
        if not 1 <= len(instances) <= IDS:
            raise InvalidRequest(
                f"RemoveInstances: {len(instances)} instances in one call, 1 to {IDS} are allowed"
            )
        params = {
            "RegionId": self._region,
            "ScalingGroupId": group,
            "DecreaseDesiredCapacity": "true" if decrease else "false",
            "IgnoreInvalidInstance": "true",
            "ClientToken": _checked_token(token),
        }
        return self._ess.call(
            "RemoveInstances", params | _listed("InstanceIds", instances), Accepted
        )

    def _version(self, template: str, version: str, *, numbered: bool) -> Version:
        """Return the version with this number, the default version, or the one
        with the highest number."""
        default = version in {"", "Default"}
        chosen = (
            {"LaunchTemplateVersion.1": version}
            if numbered
            else {"DefaultVersion": "true"}
            if default
            else {}
        )
        params = {"LaunchTemplateId": template} | chosen
        pages: Pages[Version] = self._pages(
            self._ecs, "DescribeLaunchTemplateVersions", params, decoding.VersionsPage, list
        )
        _, versions = _read_pages(pages, lambda each: str(each.version_number))
        if numbered:
            versions = [each for each in versions if each.version_number in {0, int(version)}]
        elif default:
            versions = [each for each in versions if each.default_version] or versions
        if not versions:
            raise NotFound(
                f"launch template {template} has no version {version or 'Default'}",
                code="InvalidLaunchTemplateVersion.NotFound",
            )
        return max(versions, key=lambda each: each.version_number)

    def _page(self, number: int) -> Params:
        return {"RegionId": self._region, "PageNumber": str(number), "PageSize": str(SIZE)}

    def _pages(
        self,
        line: Line,
        action: str,
        params: Params,
        kind: type[_PageBody],
        convert: Callable[[list[Any]], list[T]],
    ) -> Pages[T]:
        def page(number: int) -> tuple[int, list[T]]:
            body = line.call(action, self._page(number) | params, kind)
            return body.total_count, convert(body.items)

        return page


def _through(
    cache: TtlCache[T],
    names: Sequence[str],
    request: Callable[[Sequence[str]], list[T]],
    name_of: Callable[[T], str],
    *,
    lot: int,
    known: float,
    unknown: float,
) -> dict[str, T]:
    """Return items by name, from the shared cache or the vendor. lot: names in one request. known,
    unknown: seconds to cache existing and missing items."""
    names = list(dict.fromkeys(filter(None, names)))
    items = cache.get(names)
    missing = [name for name in names if name not in items]
    if missing:
        answered = {name_of(item): item for part in _lots(missing, lot) for item in request(part)}
        new = {name: answered.get(name) for name in missing}
        cache.put(new, known=known, unknown=unknown)
        items |= new
    return {name: item for name, item in items.items() if item is not None}


def _lots(names: Sequence[str], size: int) -> list[Sequence[str]]:
    once = list(dict.fromkeys(names))
    return [once[at : at + size] for at in range(0, len(once), size)]


def _listed(parameter: str, values: Sequence[str]) -> Params:
    return {f"{parameter}.{number}": value for number, value in enumerate(values, 1)}


def _checked_token(token: str) -> str:
    if not (0 < len(token) <= _LONGEST_TOKEN and token.isascii() and token.isprintable()):
        raise InvalidRequest(
            "the client token must be 1 to 64 ASCII characters", code="ClientToken"
        )
    return token
