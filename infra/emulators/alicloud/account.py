"""One emulated account with its scaling groups and stock, on a given clock.

It has no HTTP: a test sets up and inspects the account with this object, while the program under
test uses the API (server.py). Ids come from counters and nothing is random, so two runs are
identical, including ids.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Mapping

from infra.emulators.alicloud import simulation
from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.models import (
    AlicloudDurations,
    AlicloudGroup,
    AlicloudMachine,
    AlicloudProvisioningFate,
    AlicloudTemplate,
    Configuration,
    MachineType,
    Released,
)

REGION, ACCOUNT = "cn-hangzhou", "1000000000000001"
TYPES = (
    MachineType("ecs.g6.large", 2, 8.0),
    MachineType("ecs.g7.xlarge", 4, 16.0),
    MachineType("ecs.g6.xlarge", 4, 16.0),
    MachineType("ecs.c7.xlarge", 4, 8.0),
    MachineType("ecs.g7.2xlarge", 8, 32.0),
    MachineType("ecs.g8y.xlarge", 4, 16.0, "ARM"),
    MachineType("ecs.c8y.large", 2, 4.0, "ARM"),
    MachineType("ecs.gn6i-c4g1.xlarge", 4, 15.0, gpus=1, gpu="NVIDIA T4"),
    MachineType("ecs.gn5-c8g1.2xlarge", 8, 60.0, gpus=1, gpu="NVIDIA P100"),
)


class AlicloudCloud:
    """The account, in one region. lock: acquire it to change anything while a server is running.

    stock: (instance type, zone) -> number left; types that are not listed are unlimited. quota:
    machines in the account, None for no limit. hides_inactive: queries by id omit groups that are
    not Active, as the vendor permits. takes_empty_removals: a removal that lists only invalid
    instances is accepted instead of refused if they may be ignored (the vendor does not document
    which). prices: instance type -> hourly price, by default of its size.
    spot_prices: (instance type, zone) -> hourly price. currency: of all prices. price_answer:
    replaces the PriceInfo of
    every answer. interruptions: (instance type, zone) -> the InterruptRateDesc of its preemptible
    instances, 0-3% if not given; "" if none are offered. lag: queries for groups and instances
    return the state of that many seconds ago, and up to half as much more; activities are up to
    date.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        region: str = REGION,
        account: str = ACCOUNT,
        times: AlicloudDurations | None = None,
    ) -> None:
        self.clock, self.region, self.account, self.times = (
            clock,
            region,
            account,
            times or AlicloudDurations(),
        )
        self.lock = threading.RLock()
        self.groups: dict[str, AlicloudGroup] = {}
        self.configurations: dict[str, Configuration] = {}
        self.templates: dict[tuple[str, int], AlicloudTemplate] = {}
        self.types = {each.id: each for each in TYPES}
        self.stock: dict[tuple[str, str], int] = {}
        self.quota: int | None = None
        self.hides_inactive = self.takes_empty_removals = False
        self.prices: dict[str, float] = {}
        self.spot_prices: dict[tuple[str, str], float] = {}
        self.currency = "CNY"
        self.price_answer: object = None
        self.interruptions: dict[tuple[str, str], str] = {}
        self.lag = 0.0
        self._past: list[tuple[float, dict[str, AlicloudGroup]]] = []
        self.released: list[Released] = []
        self._numbers = {kind: itertools.count(1) for kind in ("asg", "asc", "asa", "i", "lt")}

    # -- test setup

    def add_group(
        self,
        name: str,
        *,
        size: int = 0,
        least: int = 0,
        most: int = 10,
        desired: bool = True,
        types: tuple[str, ...] = ("ecs.g7.xlarge",),
        zones: tuple[str, ...] = ("cn-hangzhou-i",),
        tags: Mapping[str, str] | None = None,
        machine_tags: Mapping[str, str] | None = None,
        template: bool = False,
        disk: int = 40,
        spot: str = "NoSpot",
        remedy: bool = False,
    ) -> AlicloudGroup:
        """Add a group with `size` machines in service. template: machines use a launch template
        instead of a scaling configuration. tags: of the group. machine_tags: of its configuration
        or template. remedy: its SpotInstanceRemedy."""
        with self.lock:
            made = AlicloudGroup(
                self.number("asg"),
                name,
                self.region,
                least,
                most,
                size if desired else None,
                zones,
                tags=dict(tags or {}),
                remedy=remedy,
            )
            if template:
                first = AlicloudTemplate(
                    self.number("lt"), 1, types[0], disk, spot, dict(machine_tags or {})
                )
                self.templates[first.id, 1] = first
                made.template, made.template_version = first.id, "Default"
                made.overrides = types if len(types) > 1 else ()
            else:
                first_ = Configuration(
                    self.number("asc"), made.id, types, disk, spot, dict(machine_tags or {})
                )
                self.configurations[first_.id] = first_
                made.configuration = first_.id
            self.groups[made.id] = made
            self.add_machines(made.id, size)
            return made

    def add_machines(
        self,
        group: str,
        count: int,
        *,
        state: str = "InService",
        creation: str = "AutoCreated",
        zone: str = "",
    ) -> list[str]:
        """Add long-running machines without changing the desired capacity. Returns their ids."""
        with self.lock:
            held = self.groups[group]
            kind, made = self.candidates(held)[0], []
            version, spot = self.definition(held)
            served = float("inf") if state.startswith("Pending") else float("-inf")
            for _ in range(count):
                machine = AlicloudMachine(
                    self.number("i"),
                    group,
                    zone or held.zones[0],
                    kind,
                    state,
                    self.clock(),
                    creation=creation,
                    configuration=held.configuration,
                    spot=spot,
                    served=served,
                    template_version=version,
                )
                held.machines[machine.id] = machine
                made.append(machine.id)
            return made

    def set_state(self, machine: str, state: str) -> None:
        """Protect a machine, put it on standby, stop it, or return it to service."""
        with self.lock:
            self.machine(machine).state = state

    def spoil(self, group: str, fate: AlicloudProvisioningFate, times: int = 1) -> None:
        """Give the next `times` machines that the group requests this fate."""
        with self.lock:
            self.groups[group].fates += [fate] * times

    def delete_group(self, group: str) -> None:
        """Delete the group with all its machines, as a person would. It is Deleting at
        once and gone a while later."""
        with self.lock:
            held = self.groups[group]
            held.state, held.gone_at = "Deleting", self.clock() + self.times.delete_group
            for machine in held.machines.values():
                machine.state = "Removing"

    def interrupt(self, machine: str) -> float:
        """Announce that ECS takes back a preemptible machine. Returns when
        it does, in epoch seconds.

        It is then gone at ECS, and ESS lists it until its next health check, which
        removes it and makes another. With `remedy` ESS makes another at once, or when its
        running activity has ended."""
        with self.lock:
            self.step()
            found, now = self.machine(machine), self.clock()
            if found.spot == "NoSpot":
                raise ValueError(f"{machine} is not preemptible")
            found.released_at = min(found.released_at, now + self.times.notice)
            group = self.groups[found.group]
            if group.remedy:
                group.check_at = now
                self.step()
            return found.released_at

    def sicken(self, machine: str, *, at_once: bool = False) -> None:
        """Stop a machine behind the back of ESS, whose next health check replaces it.
        at_once: this check is now."""
        with self.lock:
            self.step()
            found = self.machine(machine)
            group = self.groups[found.group]
            simulation.sicken(self, group, found, self.clock())
            if at_once:
                group.health_at = self.clock()
                self.step()

    def sell_out(self, *, group: str = "", kind: str = "", zone: str = "") -> None:
        """Let ECS have no more machines: of this group's types in its zones, of one type,
        in one zone, or of all. Scale-outs that need them fail with
        OperationDenied.NoStock until restock()."""
        with self.lock:
            self.stock |= dict.fromkeys(self._places(group, kind, zone), 0)

    def restock(self, *, group: str = "", kind: str = "", zone: str = "") -> None:
        """Let ECS have machines again, without a limit."""
        with self.lock:
            for place in self._places(group, kind, zone):
                self.stock.pop(place, None)

    def _places(self, group: str, kind: str, zone: str) -> list[tuple[str, str]]:
        groups = [self.groups[group]] if group else list(self.groups.values())
        kinds = self.candidates(groups[0]) if group else tuple(self.types)
        zones = dict.fromkeys(name for each in groups for name in each.zones)
        return [
            (each, name)
            for each in kinds
            for name in zones
            if kind in ("", each) and zone in ("", name)
        ]

    def redefine(
        self,
        group: str,
        *,
        types: tuple[str, ...] = (),
        spot: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Give the group a new active scaling configuration, or its launch template a new default
        version, as a person does; its machines stay as they are. What is not given stays. Returns
        the configuration's id, or the version."""
        with self.lock:
            held = self.groups[group]
            if held.template:
                old = self.template(held.template, "Default")
                number = (
                    max(version for name, version in self.templates if name == held.template) + 1
                )
                old.default = False
                self.templates[held.template, number] = AlicloudTemplate(
                    held.template,
                    number,
                    (*types, old.type)[0],
                    old.disk,
                    spot or old.spot,
                    dict(tags or old.tags),
                )
                return str(number)
            before = self.configurations[held.configuration]
            made = Configuration(
                self.number("asc"),
                group,
                types or before.types,
                before.disk,
                spot or before.spot,
                dict(before.tags if tags is None else tags),
            )
            self.configurations[made.id] = made
            held.configuration = made.id
            return made.id

    def reboot(self, machine: str) -> None:
        """Restart a machine that runs."""
        with self.lock:
            found = self.machine(machine)
            found.running_at, found.reboots = self.clock() + self.times.reboot, found.reboots + 1

    def vanish(self, machine: str) -> None:
        """Remove a machine instantly, without a notice."""
        with self.lock:
            found = self.machine(machine)
            del self.groups[found.group].machines[machine]
            self.released.append(Released(found, self.clock(), kept=False))

    def finish_hooks(self, group: str) -> None:
        """Complete the lifecycle hooks that are waiting."""
        with self.lock:
            activity = self.groups[group].running
            if activity is not None and activity.waiting:
                activity.due = self.clock()
            self.step()

    # -- content

    def number(self, kind: str) -> str:
        """Return a new id of that kind."""
        return f"{kind}-bp1local{next(self._numbers[kind]):08d}"

    def machine(self, id_: str) -> AlicloudMachine:
        """Return a machine of any group. KeyError if no group has it."""
        for group in self.groups.values():
            if id_ in group.machines:
                return group.machines[id_]
        raise KeyError(id_)

    def machines(self) -> list[AlicloudMachine]:
        """Return all machines of all groups."""
        with self.lock:
            return [
                machine for group in self.groups.values() for machine in group.machines.values()
            ]

    def template(self, id_: str, version: str) -> AlicloudTemplate:
        """Return a version of a launch template by number, `Default` or `Latest` ("" is Default).
        Raises Refused if it does not exist."""
        held = [each for (name, _), each in self.templates.items() if name == id_]
        by_name = {"Latest": held[-1:], "Default": [each for each in held if each.default]}
        found = by_name.get(
            version or "Default", [each for each in held if str(each.version) == version]
        )
        if not found:
            raise AlicloudRefusedError(
                "InvalidLaunchTemplateId.NotFound",
                f"launch template {id_} version {version} does not exist",
            )
        return found[0]

    def candidates(self, group: AlicloudGroup) -> tuple[str, ...]:
        """Return the instance types that the group may create, in order of preference."""
        if group.template:
            return group.overrides or (self.template(group.template, group.template_version).type,)
        return self.configurations[group.configuration].types

    def definition(self, group: AlicloudGroup) -> tuple[int, str]:
        """Return the version of the launch template, 0 for a configuration, and the spot
        strategy of a new machine."""
        if group.template:
            made = self.template(group.template, group.template_version)
            return made.version, made.spot
        return 0, self.configurations[group.configuration].spot

    def price(self, kind: str, *, spot: bool = False, zone: str = "") -> float:
        """Return what an instance of the type costs per hour. Preemptible instances cost a fifth,
        unless spot_prices has another price for the zone."""
        if spot and (kind, zone) in self.spot_prices:
            return self.spot_prices[kind, zone]
        size = self.types[kind]
        own = self.prices.get(kind, 0.2 * size.cpu + 0.025 * size.memory + 10.0 * size.gpus)
        return round(own / 5 if spot else own, 6)

    # -- time

    def step(self) -> None:
        """Process everything that is due now."""
        with self.lock:
            now = self.clock()
            while self.lag and self._past and self._past[-1][0] + self.lag / 2.0 < now:
                self._remember(self._past[-1][0] + self.lag / 2.0)
            simulation.advance(self, now)
            if self.lag:
                self._remember(now)

    def _remember(self, at: float) -> None:
        simulation.advance(self, at)
        self._past = [each for each in self._past if each[0] > at - 4.0 * self.lag]
        self._past.append((at, copy.deepcopy(self.groups)))

    def shown(self) -> dict[str, AlicloudGroup]:
        """Return the groups as queries show them."""
        if not self.lag:
            return self.groups
        old = [groups for at, groups in self._past if at <= self.clock() - self.lag]
        return old[-1] if old else self._past[0][1]
