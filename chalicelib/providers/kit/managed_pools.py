"""The groups that a provider may make for the declarations of spec.managedPools.

Which groups these are follows from the policy, the vendor's catalogue and the cluster's identity.
A pass offers them to the planner; an executor computes the same before it opens or grows one, so
that a message or row that the policy does not allow opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.model.group import NodeGroup, Pool
from chalicelib.model.managed_group import (
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
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.providers.kit.catalogue_shelf import CatalogueShelf
from chalicelib.providers.kit.errors import InvalidRequest, Transient
from chalicelib.providers.kit.machine_types import (
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
NOT_IN_POLICY = "NotInPolicy"
"""Code of an error: the policy does not allow what an operation asks for."""
MISSING = "no catalogue has been read yet"
DECLARATION_GONE = "its declaration is gone"
OTHER_DEFINITION = "its declaration says something else of its nodes now"
_NAMESPACES, _IDENTITY = "/api/v1/namespaces", "kube-system"


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
    system disk where it has a price of its own. problem: why it cannot be copied."""

    definition: dict[str, Any] = {}
    zones: tuple[str, ...] = ()
    disk_gib: int = 0
    problem: str = ""


class PoolCandidate(msgspec.Struct, frozen=True):
    """A group that may be opened or grown."""

    pool: ManagedPool
    machine: Machine
    group: ManagedGroup


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
    def candidates(self) -> Mapping[str, PoolCandidate]:
        """The candidates by the names of their groups. Raises ProviderError."""
        by_name: dict[str, PoolCandidate] = {}
        for pool in self.pools:
            source = self.source_of(pool)
            for machine in self._selection_of(pool).machines:
                group = ManagedGroup(self.cluster, choice_of(pool, machine), source.definition)
                by_name[group.name] = PoolCandidate(pool, machine, group)
        return by_name

    def selections(self) -> tuple[PoolSelection, ...]:
        """Return what is left of the catalogue for each declaration. Raises ProviderError."""
        stored = self.shelf.read()
        views = []
        for pool in self.pools:
            selection = self._selection_of(pool)
            problem = self.source_of(pool).problem or ("" if stored is not None else MISSING)
            view = PoolSelection(
                pool.name,
                pool.provider,
                selection.offered,
                selection.failed,
                len(selection.machines),
                problem=problem,
            )
            if stored is not None:
                currency, read_at = stored.catalogue.currency, stored.read_at
                view = msgspec.structs.replace(view, currency=currency, read_at=read_at)
            views.append(view)
        return tuple(views)

    def source_of(self, pool: ManagedPool) -> CopySource:
        """Return what a declaration copies. Raises ProviderError."""
        if pool.name not in self._sources:
            self._sources[pool.name] = self._read_source(pool)
        return self._sources[pool.name]

    def _selection_of(self, pool: ManagedPool) -> Selection:
        stored, source = self.shelf.read(), self.source_of(pool)
        if stored is None or source.problem:
            return Selection()
        if pool.name not in self._selections:
            disk_gib = pool.disk or source.disk_gib
            selection = select_machines(_located(pool, source), stored.catalogue, disk_gib)
            self._selections[pool.name] = selection
        return self._selections[pool.name]

    def is_own(self, name: str, mark: str) -> bool:
        """Return whether a group with this name is Outscaler's, of this cluster. Raises
        Transient."""
        return name.startswith(PREFIX) and is_own_mark(self.cluster, name, mark)

    def managed(self, name: str, mark: str, choice: MachineChoice) -> Managed:
        """Return what is known of an own group that exists. choice: its machines as the vendor
        reports them; the declaration is the mark's. Raises ProviderError."""
        candidate = self.candidates.get(name)
        if candidate is not None:
            return Managed(candidate.group.choice, exists=True)
        short = declaration_in(mark)
        pool = next((pool for pool in self.pools if short_declaration(pool.name) == short), None)
        declaration = pool.name if pool is not None else short
        own = msgspec.structs.replace(choice, declaration=declaration)
        return Managed(own, exists=True, retiring=self._why_retiring(name, own, pool))

    def _why_retiring(self, name: str, choice: MachineChoice, pool: ManagedPool | None) -> str:
        """Return why a group that is no candidate never grows again; "" where its type is only not
        for sale now, or nothing is known."""
        if pool is None:
            return DECLARATION_GONE
        source = self.source_of(pool)
        if source.problem:
            return ""
        if ManagedGroup(self.cluster, choice, source.definition).name != name:
            return OTHER_DEFINITION
        stored = self.shelf.read()
        entries = stored.catalogue.entries if stored is not None else ()
        wanted = _located(pool, source).requirements
        names = choice.instance_type, choice.zone
        entry = next((entry for entry in entries if (entry.name, entry.zone) == names), None)
        failed = first_failure(wanted, entry) if entry is not None else ""
        if choice.market not in wanted.markets:
            failed = "markets"
        return f"its declaration no longer allows its machines: {failed}" if failed else ""

    def check(self, operation: Operation, others: int = 0) -> PoolCandidate:
        """Return the candidate that a scale-up opens or grows. others: nodes of the declaration's
        other groups. Raises InvalidRequest if the policy does not allow it."""
        spec = operation.spec
        candidate = self.candidates.get(spec.group)
        if candidate is None or candidate.group.choice != spec.choice:
            raise _not_in_policy(f"no declaration allows the group {spec.group}")
        limits, machine = candidate.pool.limits, candidate.machine
        nodes = spec.to_size + others
        if nodes > limits.nodes:
            raise _not_in_policy(f"{nodes} nodes are above limits.nodes {limits.nodes}")
        cost = spec.to_size * machine.price
        if limits.cost_per_hour is not None and cost > limits.cost_per_hour:
            most = limits.cost_per_hour
            raise _not_in_policy(f"{cost:.4f} an hour is above limits.costPerHour {most:g}")
        return candidate


def same_declaration(mark: str, choice: MachineChoice | None) -> bool:
    """Return whether a group with this mark is of the declaration of a choice."""
    declaration = declaration_in(mark)
    if choice is None or not declaration:
        return False
    return short_declaration(choice.declaration) == declaration


def choice_of(pool: ManagedPool, machine: Machine) -> MachineChoice:
    """Return which machine of a declaration it is."""
    entry = machine.entry
    return MachineChoice(pool.name, entry.name, entry.zone, machine.market.value)


def pool_of(declaration: str) -> Pool:
    """Return the pool that the groups of a declaration share: its nodes are disrupted, spread and
    counted together."""
    return Pool(f"managed/{declaration}", declaration)


def candidate_group(
    candidate: PoolCandidate, template: GroupTemplate, currency: str, read_at: float
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


def _not_in_policy(problem: str) -> InvalidRequest:
    return InvalidRequest(problem, code=NOT_IN_POLICY)
