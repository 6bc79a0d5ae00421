"""The groups that a provider may make for the declarations of spec.managedPools.

Which groups these are follows from the policy, the vendor's catalogue and the cluster's identity.
A pass offers them to the planner; an executor computes the same before it opens or grows one, so
that a message or row that the policy does not allow opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.model.catalogue import CatalogueEntry
from chalicelib.model.errors import OutscalerError
from chalicelib.model.group import Instance, InstanceState, NodeGroup, Pool
from chalicelib.model.managed_group import (
    NOT_IN_POLICY,
    PREFIX,
    MachineChoice,
    Managed,
    ManagedGroup,
    PoolSelection,
    declaration_in,
    is_own_mark,
    short_declaration,
)
from chalicelib.model.operation import Operation
from chalicelib.model.resources import MEMORY
from chalicelib.policy.settings.managed_pools import ManagedPool, Market, PoolMode
from chalicelib.providers.kit.catalogue_shelf import CatalogueShelf
from chalicelib.providers.kit.errors import InvalidRequest, OutOfStock, ProviderError, Transient
from chalicelib.providers.kit.machine_types import (
    KNOWN_BY_NAME,
    Machine,
    Selection,
    first_failure,
    select_machines,
)
from chalicelib.providers.kit.node_template import GroupTemplate
from chalicelib.providers.kit.services import KubeLists

MARK = "outscaler.dev/managed"
"""Label or tag of a group, and of its machines where the vendor passes it on."""
POOL_LABEL = "outscaler.dev/pool"
"""Label of nodes: the declaration."""
MARKET_LABEL = "outscaler.dev/market"
"""Label of nodes: on-demand or spot."""
KERNEL_SHARE = 0.03
"""Part of a machine's memory that its kernel keeps, until a node of the type has shown it."""
DECLARATION_OFF = "its mode is off"
MISSING = "no catalogue has been read yet"
DECLARATION_GONE = "its declaration is gone"
OTHER_DEFINITION = "its declaration says something else of its nodes now"
NO_QUOTA: Mapping[str, int] = MappingProxyType({})
_NAMESPACES, _IDENTITY = "/api/v1/namespaces", "kube-system"
_DAY = 86400.0
_ROUNDING = 1e-6  # of a sum of prices
_GIB = 2**30
_REPORTED_MEMORY = 0.9
"""Part of a machine's memory that its node reports at least, which is what a plan counts."""


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


class _Namespaces(msgspec.Struct, frozen=True):
    items: list[_Namespace] | None = None


def cluster_uid(kube: KubeLists | None) -> str:
    """Return the uid of the namespace kube-system, which identifies a cluster. Raises Transient if
    it cannot be read."""
    query = {"fieldSelector": f"metadata.name={_IDENTITY}"}
    try:
        for page in kube.list_pages(_NAMESPACES, query=query) if kube is not None else ():
            for namespace in msgspec.json.decode(page.body, type=_Namespaces).items or ():
                if namespace.metadata.name == _IDENTITY and namespace.metadata.uid:
                    return namespace.metadata.uid
    except (OutscalerError, msgspec.MsgspecError, UnicodeError) as error:
        raise Transient(f"the namespace {_IDENTITY} could not be read: {error}") from None
    raise Transient(f"the namespace {_IDENTITY} has no uid")


class CopySource(msgspec.Struct, frozen=True):
    """What a declaration copies from a group or definition. definition: what makes its nodes
    different, by the names of its keys. zones: where it has its machines. disk_gib: size of the
    system disk where it has a price of its own. architecture: of its image, "" if it is unknown.
    problem: why it cannot be copied. warning: what is wrong with it."""

    definition: dict[str, Any] = {}
    zones: tuple[str, ...] = ()
    disk_gib: int = 0
    architecture: str = ""
    problem: str = ""
    warning: str = ""


class GroupCandidate(msgspec.Struct, frozen=True):
    """A group that may be opened or grown. The machine of a group that is only grown is as the last
    catalogue knows it: its price is 0.0 if that has none."""

    pool: ManagedPool
    machine: Machine
    group: ManagedGroup


class OwnSize(msgspec.Struct, frozen=True):
    """The size of an own group that exists. choice: with its declaration. nodes: those to come
    included."""

    choice: MachineChoice
    nodes: int = 0


class ManagedPools:
    """The declarations of one provider, for one pass or step. uid: returns the cluster's, see
    cluster_uid. source_of: what a declaration copies; raises ProviderError."""

    def __init__(
        self,
        pools: Iterable[ManagedPool],
        shelf: CatalogueShelf,
        uid: Callable[[], str],
        source_of: Callable[[ManagedPool], CopySource],
    ) -> None:
        self.pools = tuple(pools)
        self.shelf = shelf
        self._read_uid, self._read_source = uid, source_of
        self._sources: dict[str, CopySource] = {}
        self._selections: dict[str, Selection] = {}

    @cached_property
    def cluster(self) -> str:
        """The cluster's uid. Raises Transient."""
        return self._read_uid()

    @cached_property
    def candidates(self) -> Mapping[str, GroupCandidate]:
        """The groups that may be opened, and those of them that are open already, by their names.
        Raises ProviderError."""
        by_name: dict[str, GroupCandidate] = {}
        for pool in self.pools:
            source = self.source_of(pool)
            for machine in self._selection_of(pool).machines:
                group = ManagedGroup(self.cluster, choice_of(pool, machine), source.definition)
                by_name[group.name] = GroupCandidate(pool, machine, group)
        return by_name

    def selections(self, quota: Mapping[str, int] = NO_QUOTA) -> tuple[PoolSelection, ...]:
        """Return what is left of the catalogue for each declaration. quota: see PoolSelection.
        Raises ProviderError."""
        stored = self.shelf.last()
        views = []
        for pool in self.pools:
            selection = self._selection_of(pool)
            view = PoolSelection(
                pool.name,
                pool.provider,
                selection.offered,
                selection.failed,
                len(selection.machines),
                problem=self._why_nothing(pool),
                warning=self.source_of(pool).warning,
                quota=dict(quota),
            )
            if stored is not None:
                currency, read_at = stored.catalogue.currency, stored.read_at
                view = msgspec.structs.replace(view, currency=currency, read_at=read_at)
            views.append(view)
        return tuple(views)

    def _why_nothing(self, pool: ManagedPool) -> str:
        """Return why a declaration opens nothing, "" if it may. Raises ProviderError."""
        if pool.mode is PoolMode.OFF:
            return DECLARATION_OFF
        return self.source_of(pool).problem or self._why_no_catalogue()

    def _why_no_catalogue(self) -> str:
        """Return why nothing can be opened by the catalogue, "" if it can be used."""
        stored = self.shelf.last()
        if stored is None:
            return MISSING
        if self.shelf.read() is not None:
            return ""
        return f"the catalogue is {self.shelf.age(stored) / _DAY:.0f} days old"

    def source_of(self, pool: ManagedPool) -> CopySource:
        """Return what a declaration copies. Raises ProviderError."""
        if pool.name not in self._sources:
            self._sources[pool.name] = self._read_source(pool)
        return self._sources[pool.name]

    def _selection_of(self, pool: ManagedPool) -> Selection:
        stored, source = self.shelf.read(), self.source_of(pool)
        if stored is None or source.problem or pool.mode is PoolMode.OFF:
            return Selection()
        if pool.name not in self._selections:
            disk_gib = pool.disk or source.disk_gib
            self._selections[pool.name] = select_machines(
                _located(pool, source), stored.catalogue, disk_gib, source.architecture
            )
        return self._selections[pool.name]

    # -- groups that exist

    def is_own(self, name: str, mark: str) -> bool:
        """Return whether a group with this name is Outscaler's, of this cluster. Raises
        Transient."""
        return name.startswith(PREFIX) and is_own_mark(self.cluster, name, mark)

    def choice_in(self, name: str, mark: str, choice: MachineChoice) -> MachineChoice:
        """Return the machines of an own group with their declaration: the one whose definition
        gives this name, otherwise one that the mark may name, or the text in the mark. choice:
        without it. Raises ProviderError."""
        candidate = self.candidates.get(name)
        if candidate is not None:
            return candidate.group.choice
        short = declaration_in(mark)
        named = [pool for pool in self.pools if short_declaration(pool.name) == short]
        own = [msgspec.structs.replace(choice, declaration=pool.name) for pool in named]
        current = [each for each in own if self.declared(name, each) is not None]
        other = msgspec.structs.replace(choice, declaration=short)
        return next(iter((*current, *own, other)))

    def managed(self, name: str, mark: str, choice: MachineChoice) -> Managed:
        """Return what is known of an own group that exists. choice: its machines as the vendor
        reports them, an empty type if that is not known; the declaration is the mark's. Raises
        ProviderError."""
        own = self.choice_in(name, mark, choice)
        if name in self.candidates:
            return Managed(own, exists=True)
        return Managed(own, exists=True, retiring=self._why_retiring(name, own))

    def _why_retiring(self, name: str, choice: MachineChoice) -> str:
        """Return why a group that is no candidate never grows again; "" where its type is only not
        for sale now, or nothing is known."""
        pool = self._pool_of(choice)
        if pool is None:
            return DECLARATION_GONE
        if self.source_of(pool).problem or not choice.instance_type:
            return ""
        if self.declared(name, choice) is None:
            return OTHER_DEFINITION
        failed = self._failed(pool, choice)
        return f"its declaration no longer allows its machines: {failed}" if failed else ""

    def _failed(self, pool: ManagedPool, choice: MachineChoice) -> str:
        """Return the requirement that the machines of a group do not meet, as far as they are
        known; "" if they meet all."""
        wanted = _located(pool, self.source_of(pool)).requirements
        if choice.market not in wanted.markets:
            return "markets"
        entry = self._entry_of(choice)
        if entry is not None:
            return first_failure(wanted, entry)
        return first_failure(wanted, _unknown(choice), KNOWN_BY_NAME)

    def declared(self, name: str, choice: MachineChoice) -> GroupCandidate | None:
        """Return the group that a declaration makes of these machines, None if its name is another
        one, because the declaration is gone or says something else of its nodes. Raises
        ProviderError."""
        pool = self._pool_of(choice)
        source = self.source_of(pool) if pool is not None else CopySource()
        if pool is None or source.problem:
            return None
        group = ManagedGroup(self.cluster, choice, source.definition)
        if group.name != name:
            return None
        entry, price = self._entry_of(choice), self.price_of(choice)
        market = Market(choice.market) if choice.market in tuple(Market) else Market.ON_DEMAND
        return GroupCandidate(pool, Machine(entry or _unknown(choice), market, price), group)

    def growable(self, name: str, choice: MachineChoice) -> GroupCandidate | None:
        """Return an own group that exists and may grow, None if it may not. A catalogue that is
        too old, or gone, opens no group, but existing ones grow on: their machines are known to be
        what the declaration wants. Raises ProviderError."""
        candidate = self.candidates.get(name)
        if candidate is not None:
            return candidate
        known = self.declared(name, choice)
        if known is None or known.pool.mode is PoolMode.OFF:
            return None
        if self.shelf.read() is not None or self._failed(known.pool, choice):
            return None
        has_limit = known.pool.limits.cost_per_hour is not None
        return None if has_limit and not known.machine.price else known

    def price_of(self, choice: MachineChoice) -> float:
        """Return the price of a node an hour by the last catalogue, 0.0 if it is not known. Raises
        ProviderError."""
        stored, entry, pool = self.shelf.last(), self._entry_of(choice), self._pool_of(choice)
        if stored is None or entry is None:
            return 0.0
        price = entry.spot_price if choice.market == Market.SPOT else entry.price
        disk_gib = (pool.disk or self.source_of(pool).disk_gib) if pool is not None else 0
        return 0.0 if price is None else price + disk_gib * (stored.catalogue.disk_price or 0.0)

    def type_by_id(self, vendor_id: str) -> str:
        """Return the name of the type that the vendor's API calls by this id, "" if the last
        catalogue has none."""
        stored = self.shelf.last()
        entries = stored.catalogue.entries if stored is not None and vendor_id else ()
        return next((entry.name for entry in entries if entry.vendor_id == vendor_id), "")

    def _pool_of(self, choice: MachineChoice) -> ManagedPool | None:
        return next((pool for pool in self.pools if pool.name == choice.declaration), None)

    def _entry_of(self, choice: MachineChoice) -> CatalogueEntry | None:
        return self._entries.get((choice.instance_type, choice.zone))

    @cached_property
    def _entries(self) -> Mapping[tuple[str, str], CatalogueEntry]:
        """The rows of the last catalogue."""
        stored = self.shelf.last()
        entries = stored.catalogue.entries if stored is not None else ()
        return {(entry.name, entry.zone): entry for entry in entries}

    # -- before a change

    def check(
        self, operation: Operation, sizes: Iterable[OwnSize], *, exists: bool
    ) -> GroupCandidate:
        """Return the group that a scale-up opens or grows. sizes: the other own groups. exists: the
        vendor has it. Raises InvalidRequest if the policy does not allow it, OutOfStock if only the
        catalogue has none of its machines, and other ProviderErrors."""
        spec = operation.spec
        choice, name = spec.choice, spec.group
        declared = self.declared(name, choice) if choice is not None else None
        if declared is None or choice is None:
            raise _not_in_policy(f"no declaration allows the group {name}")
        failed = self._failed(declared.pool, choice)
        if failed:
            raise _not_in_policy(f"the declaration does not allow the machines of {name}: {failed}")
        candidate = self.growable(name, choice) if exists else self.candidates.get(name)
        if candidate is None:
            raise self._why_no_candidate(declared)
        self._check_limits(candidate, spec.to_size, sizes)
        return candidate

    def _why_no_candidate(self, candidate: GroupCandidate) -> ProviderError:
        """Return why a group that its declaration allows may not be opened or grown now."""
        pool, machine = candidate.pool, candidate.machine
        name, most = candidate.group.name, pool.requirements.max_price
        if most is not None and machine.price > most:
            return _not_in_policy(f"{machine.price:.4f} an hour is above maxPrice {most:g}")
        if problem := self._why_nothing(pool):
            return _not_in_policy(f"the group {name} cannot be judged: {problem}")
        text = f"the catalogue has none of {machine.entry.name} in {machine.entry.zone} now"
        return OutOfStock(text, code="Catalogue")

    def _check_limits(self, candidate: GroupCandidate, size: int, sizes: Iterable[OwnSize]) -> None:
        """Raise InvalidRequest if a group of this size is too much, together with the others of
        its declaration. Of those that the catalogue does not know only the nodes count."""
        pool, limits = candidate.pool, candidate.pool.limits
        machine = candidate.machine
        counted = [(size, machine.entry, machine.price)]
        for own in sizes:
            if own.choice.declaration == pool.name:
                entry = self._entry_of(own.choice) or _unknown(own.choice)
                counted.append((own.nodes, entry, self.price_of(own.choice)))
        memory = sum(nodes * entry.memory for nodes, entry, _ in counted)
        amounts: dict[str, float] = {
            "nodes": sum(nodes for nodes, _, _ in counted),
            "cpu": sum(nodes * entry.cores for nodes, entry, _ in counted),
            "memory": memory * _REPORTED_MEMORY / _GIB,
            "gpus": sum(nodes * entry.gpus for nodes, entry, _ in counted),
            "cost_per_hour": sum(nodes * price for nodes, _, price in counted),
        }
        for limit in msgspec.structs.fields(limits):
            most, amount = getattr(limits, limit.name), amounts[limit.name]
            if most is not None and amount > most + _ROUNDING:
                text = f"{round(amount, 4):g} is above limits.{limit.encode_name} {most:g}"
                raise _not_in_policy(text)


def choice_of(pool: ManagedPool, machine: Machine) -> MachineChoice:
    """Return which machine of a declaration it is."""
    entry = machine.entry
    return MachineChoice(pool.name, entry.name, entry.zone, machine.market.value)


def pool_of(declaration: str) -> Pool:
    """Return the pool that the groups of a declaration share: its nodes are disrupted, spread and
    counted together."""
    return Pool(f"managed/{declaration}", declaration)


def candidate_group(
    candidate: GroupCandidate, template: GroupTemplate, currency: str, read_at: float
) -> NodeGroup:
    """Return a group that does not exist yet, of which any number of nodes can be bought that
    stock and limits allow."""
    pool, machine = candidate.pool, candidate.machine
    most = pool.limits.nodes if machine.stock is None else min(machine.stock, pool.limits.nodes)
    return NodeGroup(
        id=candidate.group.name,
        provider=pool.provider,
        max=most,
        template=template.node,
        template_error=template.problem,
        price=machine.price,
        currency=currency,
        priced_at=read_at,
        spot=machine.market == "spot",
        pool=pool_of(pool.name),
        managed=Managed(candidate.group.choice),
    )


def with_outdated(instances: Iterable[Instance], retiring: str) -> tuple[Instance, ...]:
    """Return the instances of an own group. They are outdated by what retires the group, and by
    nothing else: image and user data of what it copies change all the time. retiring: see
    Managed."""
    return tuple(
        msgspec.structs.replace(
            instance, outdated="" if instance.state is InstanceState.DELETING else retiring
        )
        for instance in instances
    )


def with_kernel(reserve: Mapping[str, int], memory: int) -> dict[str, int]:
    """Return a reserve, as of template_node, with what the kernel of an unknown machine keeps.
    memory: bytes of the machine."""
    return {**reserve, MEMORY: reserve.get(MEMORY, 0) + int(memory * KERNEL_SHARE)}


def _located(pool: ManagedPool, source: CopySource) -> ManagedPool:
    """Return the declaration with the zones of what it copies, where it names none."""
    if pool.requirements.zones:
        return pool
    requirements = msgspec.structs.replace(pool.requirements, zones=source.zones)
    return msgspec.structs.replace(pool, requirements=requirements)


def _unknown(choice: MachineChoice) -> CatalogueEntry:
    """Return the entry of a type of which only the name is known."""
    return CatalogueEntry(choice.instance_type, "", choice.zone, 0, 0)


def _not_in_policy(problem: str) -> InvalidRequest:
    return InvalidRequest(problem, code=NOT_IN_POLICY)
