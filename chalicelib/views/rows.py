"""Rows of the tables of clusters, node groups and nodes, made once for the page, `outscaler
get` and the read routes.

A row joins what the last decision says (model/plan.py), what is remembered (model/memory.py), what
the last pass saw (model/overview.py) and what is under way. Instants are epoch seconds; JSON has
RFC 3339 (views.as_json).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from chalicelib.model.health import HealthState, Tone, of_backoff
from chalicelib.model.memory import GroupMemory, InterruptionNotice, Memory
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.overview import ClusterOverview, GroupOverview, NodeOverview
from chalicelib.model.pause import Pause, PausedPart, in_force
from chalicelib.model.plan import GroupVerdict, LifecycleVerdict, Plan
from chalicelib.model.purchases import coming_for
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import OF_PROVIDER
from chalicelib.reasons.words import counted
from chalicelib.store.journal import JournalEntry
from chalicelib.views.cluster_view import (
    ClusterStatus,
    FailureView,
    GroupView,
    Instant,
    JoinsView,
    NoticeView,
    PauseView,
    SpotView,
    as_json,
    coded,
    coming_words,
    group_view,
    node_names,
    notice_view,
    spot_view,
)
from chalicelib.views.consolidation import reasons_by_node
from chalicelib.views.journal_lines import ERRORS, error_words, operation_of
from chalicelib.views.lifecycle import count_words, due_counts, restarts, says, verdict_data

REMOVED, UNNEEDED, STAYS = "removed", "unneeded", "stays"
_NODE_ORDER = (REMOVED, UNNEEDED, STAYS)
RECENT = 86400.0
"""Seconds for which a steady group still says what it could not do."""
LATEST = 5
"""Latest operations of a kind in a group, whose median says how long one usually takes."""
_PROVIDERS = {
    "alicloud": "Alibaba ESS",
    "cherryservers": "Cherry Servers",
    "clusterapi": "Cluster API",
    "exoscale": "Exoscale",
    "huaweicloud": "Huawei CCE",
}


class ClusterRow(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster with a policy. last_error: of passes that fail. problem: why its policy or its rows
    cannot be used. pauses: ended ones, too. mode_word, nodes, coming, waiting: None where they are
    not known. without_node: of the waiting pods, those for which no node is coming. is_paused: as a
    whole."""

    name: str
    version: int
    stored_at: Instant
    digest: str
    last_pass: Instant
    last_success: Instant
    last_error: FailureView | None
    health: str
    problem: str | None
    pauses: tuple[PauseView, ...]
    mode_word: str | None = msgspec.field(name="mode")
    nodes: int | None
    coming: int | None
    waiting: int | None
    without_node: int | None
    status: ClusterStatus
    is_paused: bool = False


class GroupStatus(msgspec.Struct, frozen=True):
    """The state of a group. word: one of model/health.py. person: somebody must do something.
    detail: a sentence without a time, "" where the word says it all. since, until: 0.0 for none.
    usually: the median of the seconds that its latest growths took, 0.0: unknown."""

    word: str
    tone: Tone
    detail: str = ""
    since: Instant = Instant(0.0)
    until: Instant = Instant(0.0)
    usually: float = 0.0
    person: bool = False

    @classmethod
    def of(
        cls,
        state: HealthState,
        detail: str = "",
        since: float = 0.0,
        until: float = 0.0,
        usually: float = 0.0,
    ) -> GroupStatus:
        """Return the status with the words of a state."""
        row = state.row
        begin, end = Instant(since), Instant(until)
        return cls(row.word, row.tone, detail, begin, end, usually, row.person)

    def is_one_of(self, *states: HealthState) -> bool:
        """Return whether it is one of these."""
        return self.word in {state.word for state in states}


class GroupRow(msgspec.Struct, frozen=True, rename="camel"):
    """A node group. group: the id, a detail for people; name: what they call it. provider: the key
    of the policy; provider_title: for people, such as Alibaba ESS. zone, machine: "" where unknown.
    price: per hour and node. ready, target, min, max: None where they are not known: the group is
    remembered, and no pass has seen it. cpu, memory: percent of allocatable that pods request, None
    where no node is ready or it is not known. aliases: further names by which a person may mean it.
    price_source: policy or provider; price_date: YYYY-MM-DD; no_price: why there is none, or why it
    is not compared with the others. joins: what its nodes have taught. spot: the risk of a spot
    group, None of another one. due: number of its nodes that should go although they are needed, by
    the reason:
    repair, expired, drifted; those that need not go yet by what holds them
    (lifecycle.due_counts). remembered: of its requests and failures."""

    group: str
    name: str
    provider: str
    provider_title: str
    zone: str
    machine: str
    price: float | None
    currency: str
    ready: int | None
    coming: int
    target: int | None
    min: int | None
    max: int | None
    cpu: int | None
    memory: int | None
    status: GroupStatus
    remembered: GroupView
    aliases: tuple[str, ...] = ()
    price_source: str = ""
    price_date: str = ""
    no_price: str = ""
    joins: JoinsView = JoinsView()
    spot: SpotView | None = None
    due: dict[str, int] = {}

    @property
    def is_decided(self) -> bool:
        """Return whether it is more than remembered: the last pass could have read it."""
        return not self.status.is_one_of(HealthState.GROUP_UNDECIDED)

    @property
    def due_words(self) -> str:
        """Return `1 sick, 2 too old, 1 sick not for long enough yet`, "" where no node is due."""
        return count_words(self.due)


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """A node. group_name: what people call its group, "" for none. decision: removed, unneeded or
    stays, "" where there is none. reason: why it is not removed, None where it is or where the
    decision does not say. pod: that keeps it. evict: of a removal. consolidation: why it is not
    consolidated, None where it is, where that is also why it is not removed, and where
    consolidation is off. spot: its vendor may take it back; notice: its vendor does. lifecycle: why
    it should go although it is needed; is_restarted: the decision restarts it."""

    node: str
    group: str
    group_name: str
    machine: str
    zone: str
    created: Instant
    cpu: int | None
    memory: int | None
    pods: int | None
    decision: str
    reason: Reason | None
    pod: str
    evict: tuple[str, ...]
    consolidation: Reason | None = None
    spot: bool = False
    notice: NoticeView | None = None
    lifecycle: LifecycleVerdict | None = None
    is_restarted: bool = False

    @property
    def due_line(self) -> str:
        """Return why it should go and what holds it, "" where it is not due."""
        if self.lifecycle is None:
            return ""
        return says(self.lifecycle, is_restarted=self.is_restarted)


# -- names


class GroupMatch(msgspec.Struct, frozen=True):
    """The node group that a person means: its id, or "" with the names of
    those that they may mean."""

    group: str = ""
    candidates: tuple[str, ...] = ()


def short_name(group: str) -> str:
    """Return the best name in a group's id: the object's of Cluster API, the
    pool's of CCE's default group."""
    parts = group.split("/")
    if len(parts) > 2 or (len(parts) == 2 and parts[1] != "default"):
        return parts[-1] or group
    return parts[0] or group


def provider_title(provider: str) -> str:
    """Return a provider's name for people."""
    return _PROVIDERS.get(provider, provider)


def unique_names(groups: Iterable[GroupOverview]) -> dict[str, str]:
    """Return the name of each group by its id. Of groups with the same name, each gets its
    provider, its zone or its id before or after it, the first of these that separates them."""
    by_id = {group.group: group for group in groups}
    plain = {key: group.name or short_name(key) for key, group in by_id.items()}
    with_provider = {key: f"{by_id[key].provider}/{name}" for key, name in plain.items()}
    with_zone = {key: f"{name}/{by_id[key].zone}" for key, name in plain.items() if by_id[key].zone}
    by_name: dict[str, list[str]] = {}
    for key, name in plain.items():
        by_name.setdefault(name, []).append(key)
    names: dict[str, str] = {}
    for alike in by_name.values():
        form: dict[str, str] = {}
        for candidate in (plain, with_provider, with_zone):
            distinct = {candidate.get(key, "") for key in alike}
            if len(distinct) == len(alike):
                form = candidate
                break
        names |= {key: form.get(key, "") or key for key in alike}
    counts = Counter(names.values())
    return {key: name if counts[name] == 1 else key for key, name in names.items()}


def group_named(groups: Sequence[GroupRow] | ClusterOverview, text: str) -> GroupMatch:
    """Return the group that a person means by an id, a name or an alias; a name in another case
    will do. Where several are meant, or none, the names that come near."""
    rows: list[tuple[str, str, tuple[str, ...]]]
    if isinstance(groups, ClusterOverview):
        names = unique_names(groups.groups)
        rows = [
            (group.group, names[group.group], (group.name, *group.aliases))
            for group in groups.groups
        ]
    else:
        rows = [(row.group, row.name, row.aliases) for row in groups]
    name_of = {key: name for key, name, _ in rows}
    words = {key: {key, name, short_name(key), *aliases} - {""} for key, name, aliases in rows}
    folded = {key: {word.casefold() for word in of_key} for key, of_key in words.items()}
    exact = [key for key, name, _ in rows if text in (key, name)]
    by_word = [key for key in words if text in words[key]]
    by_folded_word = [key for key in words if text.casefold() in folded[key]]
    for keys in (exact[:1], by_word, by_folded_word):
        if len(keys) == 1:
            return GroupMatch(keys[0])
        if keys:
            return GroupMatch(candidates=tuple(name_of[key] for key in keys))
    near = get_close_matches(text, list(name_of.values()), n=3, cutoff=0.5)
    return GroupMatch(candidates=tuple(near))


# -- rows of groups


def group_rows(
    plan: Plan | None,
    memory: Memory,
    overview: ClusterOverview,
    now: float,
    *,
    pauses: Iterable[Pause] = (),
    entries: Sequence[JournalEntry] = (),
) -> tuple[GroupRow, ...]:
    """Return a row for each node group: those of the decision in its order, then those that the
    last pass could not read. plan: the last decision, None where there is none. entries: of the
    journal, newest first, for what a growth usually takes and what failed."""
    seen = {group.group: group for group in overview.groups}
    verdicts = {verdict.group: verdict for verdict in plan.groups} if plan is not None else {}
    unread = dict(_unread(plan, memory, seen, verdicts))
    decided_at = plan.at if plan is not None else 0.0
    facts = {}
    for key in (*verdicts, *unread):
        verdict = verdicts.get(key)
        provider = verdict.provider if verdict is not None else ""
        operations = [operation for operation in memory.operations if operation.spec.group == key]
        facts[key] = _GroupFacts(
            key,
            seen.get(key) or GroupOverview(key, provider=provider),
            key in seen,
            verdict,
            memory.groups.get(key),
            tuple(operation for operation in operations if operation.is_open),
            decided_at,
            unread.get(key, ""),
        )
    names = unique_names(group.overview for group in facts.values())
    by_group: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        by_group.setdefault(entry.group, []).append(entry)
    context = _RowContext(
        in_force(pauses, now), by_group, _pods_at_maximum(plan), _due(plan, overview), now
    )
    return tuple(
        _row(group, names[key], overview.currency, context) for key, group in facts.items()
    )


class _Size(msgspec.Struct, frozen=True):
    """Of a group; None: not known."""

    ready: int | None = None
    target: int | None = None
    min: int | None = None
    max: int | None = None


class _GroupFacts(msgspec.Struct, frozen=True):
    """What is known of one group. is_seen: by a pass that left an overview. stored_memory: None
    where nothing is remembered. decided_at: of the decision (epoch seconds). unread: why the last
    pass could not read it."""

    group: str
    overview: GroupOverview
    is_seen: bool
    verdict: GroupVerdict | None
    stored_memory: GroupMemory | None
    operations: tuple[Operation, ...]
    decided_at: float
    unread: str

    @property
    def memory(self) -> GroupMemory:
        return self.stored_memory or GroupMemory()

    def operations_of(self, kind: OperationKind) -> list[Operation]:
        return [operation for operation in self.operations if operation.spec.kind is kind]

    @property
    def size(self) -> _Size:
        if self.verdict is not None:
            verdict = self.verdict
            return _Size(verdict.ready, self.target, verdict.min, verdict.max)
        target = self.target if self.stored_memory is not None else None
        if not self.is_seen:
            return _Size(target=target)
        return _Size(self.overview.ready, target, self.overview.min, self.overview.max)

    @property
    def growths(self) -> list[Operation]:
        return self.operations_of(OperationKind.SCALE_UP)

    @property
    def target(self) -> int:
        target = self.verdict.target if self.verdict is not None else self.memory.target
        sizes = [operation.spec.to_size for operation in self.growths]
        return max([target, *sizes])

    @property
    def coming(self) -> int:
        """The nodes on their way: those that the decision counts, or that it has just requested."""
        upcoming = self.verdict.upcoming if self.verdict is not None else 0
        specs = [growth.spec for growth in self.growths]
        requested = [
            spec.to_size - spec.from_size for spec in specs if spec.created_at >= self.decided_at
        ]
        return max([upcoming, *requested])


class _RowContext(msgspec.Struct, frozen=True):
    """What all rows share. entries: of the journal, by group. waiting: pods that a group's maximum
    refuses, by its id. due: see GroupRow, by group."""

    pauses: tuple[Pause, ...]
    entries: Mapping[str, Sequence[JournalEntry]]
    waiting: Mapping[str, int]
    due: Mapping[str, dict[str, int]]
    now: float


def _unread(
    plan: Plan | None,
    memory: Memory,
    seen: Mapping[str, GroupOverview],
    verdicts: Mapping[str, GroupVerdict],
) -> Iterator[tuple[str, str]]:
    """Yield the groups that the decision does not have, although they exist, and why."""
    gaps: dict[str, str] = {}
    if plan is not None:
        gaps = {gap.kind: gap.detail for gap in plan.gaps if gap.kind.startswith(OF_PROVIDER)}
    for key in sorted({*memory.groups, *seen} - set(verdicts)):
        provider = seen[key].provider if key in seen else ""
        gap = OF_PROVIDER + provider
        if plan is None:
            yield key, ""
        elif gaps and (not provider or gap in gaps):
            yield key, gaps.get(gap, "") or next(iter(gaps.values()))


def _pods_at_maximum(plan: Plan | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for waiting in plan.unschedulable if plan is not None else ():
        for group, reasons in waiting.reasons.items():
            if any(reason.code.row.at_maximum for reason in reasons):
                counts[group] += len(waiting.pods)
    return counts


def _due(plan: Plan | None, overview: ClusterOverview) -> dict[str, dict[str, int]]:
    group_of = overview.group_of
    verdicts: dict[str, list[LifecycleVerdict]] = {}
    for verdict in plan.lifecycle if plan is not None else ():
        if verdict.node in group_of:
            verdicts.setdefault(group_of[verdict.node].group, []).append(verdict)
    return {group: due_counts(of_group) for group, of_group in verdicts.items()}


def _row(group: _GroupFacts, name: str, currency: str, context: _RowContext) -> GroupRow:
    overview = group.overview
    memory = group.stored_memory or GroupMemory(target=group.target)
    remembered = group_view(group.group, memory, context.now)
    size = group.size
    return GroupRow(
        group=group.group,
        name=name,
        provider=overview.provider,
        provider_title=provider_title(overview.provider),
        zone=overview.zone,
        machine=overview.machine,
        price=overview.price or None,
        currency=overview.currency or currency,
        ready=size.ready,
        coming=group.coming,
        target=size.target,
        min=size.min,
        max=size.max,
        cpu=percent(overview.cpu_requested, overview.cpu),
        memory=percent(overview.memory_requested, overview.memory),
        status=next(_statuses(group, context)),
        remembered=remembered,
        aliases=tuple(sorted({overview.name, *overview.aliases} - {"", name})),
        price_source=overview.price_source,
        price_date=overview.price_date,
        no_price=overview.no_price,
        joins=remembered.joins,
        spot=spot_view(overview.spot, group.memory.risk, context.now),
        due=context.due.get(group.group, {}),
    )


def only_remembered(memory: Memory, rows: Sequence[GroupRow], now: float) -> tuple[GroupRow, ...]:
    """Return a row for each group that is remembered and is not among the rows."""
    others = set(memory.groups) - {row.group for row in rows}
    return tuple(_remembered_row(group, memory.groups[group], now) for group in sorted(others))


def _remembered_row(group: str, memory: GroupMemory, now: float) -> GroupRow:
    remembered = group_view(group, memory, now)
    return GroupRow(
        group=group,
        name=short_name(group),
        provider="",
        provider_title="",
        zone="",
        machine="",
        price=None,
        currency="",
        ready=None,
        coming=0,
        target=memory.target,
        min=None,
        max=None,
        cpu=None,
        memory=None,
        status=GroupStatus.of(HealthState.GROUP_UNDECIDED),
        remembered=remembered,
        joins=remembered.joins,
        spot=spot_view(None, memory.risk, now),
    )


def group_data(row: GroupRow, remembered: dict[str, Any]) -> dict[str, Any]:
    """Return a group under its stable keys. remembered: what is remembered of it, under the keys
    of the answer."""
    if not row.is_decided:
        return remembered
    data = as_json(row)
    del data["remembered"]
    return data | remembered


def price_words(price: float | None, currency: str, source: str, date: str, missing: str) -> str:
    """Return `0.24 EUR (provider, 2026-11-27)`, or `no price: …`; "" if neither is known.
    missing: see GroupRow.no_price."""
    if price is None:
        return f"no price: {missing}" if missing else ""
    words = f"{price:g}"
    if currency:
        words += f" {currency}"
    origin = ", ".join(filter(None, (source, date)))
    if origin:
        words += f" ({origin})"
    if missing:
        words += f"; not compared: {missing}"
    return words


def percent(part: float, whole: float) -> int | None:
    """Return a share in percent, None where there is nothing of which it is a share."""
    return round(100 * part / whole) if whole > 0 else None


def _statuses(group: _GroupFacts, context: _RowContext) -> Iterator[GroupStatus]:
    """Yield every status that applies, the one that is shown first."""
    verdict = group.verdict
    skipped = verdict.skipped if verdict is not None else None
    skipped_detail = str(skipped.params.get("detail", "")) if skipped is not None else ""
    is_unreadable = skipped is not None and skipped.code is ReasonCode.GROUP_UNREADABLE
    if group.unread or is_unreadable:
        yield GroupStatus.of(HealthState.GROUP_NOT_READ, group.unread or skipped_detail)
    if verdict is not None and not verdict.healthy:
        yield GroupStatus.of(HealthState.GROUP_UNHEALTHY, skipped_detail)
    yield from _backing_off(group, context, HealthState.GROUP_CANNOT_GROW)
    for pause in context.pauses:
        if pause.group == group.group:
            detail = _paused(pause)
            yield GroupStatus.of(HealthState.GROUP_PAUSED, detail, pause.since, pause.until)
    yield from _backing_off(group, context, HealthState.GROUP_BACKING_OFF)
    if group.coming:
        yield _growing(group, context)
    removals = group.operations_of(OperationKind.DELETE_NODES)
    if removals:
        count = sum(len(operation.spec.targets) for operation in removals) or len(removals)
        detail = f"{counted(count, 'node')} leave{'s' if count == 1 else ''}"
        since = min(operation.spec.created_at for operation in removals)
        yield GroupStatus.of(HealthState.GROUP_LEAVING, detail, since)
    pods = context.waiting.get(group.group, 0)
    if pods and verdict is not None:
        need = f"{counted(pods, 'pod')} would need another node"
        yield GroupStatus.of(HealthState.GROUP_AT_MAXIMUM, need)
    yield _steady(group, context)


def _backing_off(
    group: _GroupFacts, context: _RowContext, state: HealthState
) -> Iterator[GroupStatus]:
    """Yield the status of a group that is backed off, if it is this one."""
    backoff = group.memory.backoff
    if backoff is None or backoff.until < context.now:
        return
    if of_backoff(backoff.cls, backoff.attempt) is state:
        detail = failure_words(backoff.cls, backoff.message, group.overview.zone)
        yield GroupStatus.of(state, detail, backoff.last_failed, backoff.until)


def _growing(group: _GroupFacts, context: _RowContext) -> GroupStatus:
    request = group.memory.request
    if request is not None:
        since = request.purchases[0].since
    else:
        since = min((operation.spec.created_at for operation in group.growths), default=0.0)
    detail = f"{counted(group.coming, 'node')} on {'its' if group.coming == 1 else 'their'} way"
    words = coming_words(coming_for(request))
    if words:
        detail += f", coming for: {words}"
    usually = usual_seconds(context.entries.get(group.group, ()), OperationKind.SCALE_UP)
    return GroupStatus.of(HealthState.GROUP_GROWING, detail, since, usually=usually)


_VERBS = {
    OperationKind.SCALE_UP: "grow",
    OperationKind.RESTART_NODE: "restart a node",
    OperationKind.REMOVE_GROUP: "be deleted",
}


def _steady(group: _GroupFacts, context: _RowContext) -> GroupStatus:
    """Return the status of a group of which nothing is to be said but what it could not do
    lately."""
    for entry in context.entries.get(group.group, ()):
        line = operation_of(entry) if context.now - entry.at < RECENT else None
        if line is None:
            continue
        if line.succeeded or not line.error_class:
            break
        words = failure_words(line.error_class, line.message, group.overview.zone)
        verb = _VERBS.get(line.kind, "shrink")
        return GroupStatus.of(HealthState.GROUP_STEADY, f"could not {verb}: {words}", entry.at)
    return GroupStatus.of(HealthState.GROUP_STEADY)


def _paused(pause: Pause) -> str:
    part = "" if pause.part is PausedPart.ALL else f"{pause.part.value}: "
    by = f", by {pause.by}" if pause.by else ""
    return f"{part}{pause.reason}{by}"


def failure_words(error_class: str, message: str = "", zone: str = "") -> str:
    """Return why a vendor did not do what it was asked, such as `sold out in ch-gva-2`. A message
    says nothing more where machines are sold out."""
    if error_class == "OutOfStock":
        return f"{ERRORS[error_class]} in {zone}" if zone else ERRORS[error_class]
    return error_words(error_class, message=message) or "failed"


def usual_seconds(entries: Iterable[JournalEntry], kind: OperationKind) -> float:
    """Return the median of the seconds that the latest such operations took, 0.0 where none is
    known. entries: of one group, newest first."""
    operations = [line for line in map(operation_of, entries) if line is not None]
    succeeded = [line for line in operations if line.kind is kind and line.succeeded]
    seconds = [line.seconds for line in succeeded if line.seconds is not None]
    latest = sorted(seconds[:LATEST])
    if not latest:
        return 0.0
    lower = latest[(len(latest) - 1) // 2]
    upper = latest[len(latest) // 2]
    return (lower + upper) / 2


# -- rows of nodes


def node_rows(
    plan: Plan | None,
    overview: ClusterOverview,
    groups: Sequence[GroupRow],
    memory: Memory,
    entries: Iterable[JournalEntry] = (),
) -> tuple[NodeRow, ...]:
    """Return a row for each node: those of the decision first, removed ones before the others, then
    those that only the overview has. memory: for the notices of vendors. entries: of the journal,
    for removals that have ended since.

    A decision has a verdict about each node, and a pass that sees others decides anew. A node that
    only an older overview has is therefore gone."""
    names = {row.group: row.name for row in groups}
    spots = {row.group for row in groups if row.spot is not None}
    seen = {node.name: node for node in overview.nodes}
    decisions = _decisions(plan)
    removals = {removal.node: removal for removal in plan.removals} if plan is not None else {}
    verdicts = {verdict.node: verdict for verdict in plan.unremovable} if plan is not None else {}
    consolidation = reasons_by_node(plan)
    notices: dict[str, InterruptionNotice] = {}
    for group_memory in memory.groups.values():
        if group_memory.risk is not None:
            notices |= group_memory.risk.notices
    due = {verdict.node: verdict for verdict in plan.lifecycle} if plan is not None else {}
    rows = []
    gone = _removed_since(plan, entries)
    is_older = plan is not None and overview.at < plan.at
    names_shown = decisions if is_older else dict.fromkeys((*decisions, *seen))
    for name in names_shown:
        if name in gone:
            continue
        node = seen.get(name, NodeOverview(name))
        removal = removals.get(name)
        verdict = verdicts.get(name) if removal is None else None
        reason = verdict.reason if verdict is not None else None
        unconsolidated = consolidation.get(name)
        is_same_reason = (
            unconsolidated is not None and reason is not None and reason.code is unconsolidated.code
        )
        group = removal.group if removal is not None else ""
        if 0 <= node.group < len(overview.groups):
            group = overview.groups[node.group].group or group
        rows.append(
            NodeRow(
                node=name,
                group=group,
                group_name=names.get(group, short_name(group) if group else ""),
                machine=node.machine,
                zone=node.zone,
                created=Instant(node.created),
                cpu=node.cpu if node.cpu >= 0 else None,
                memory=node.memory if node.memory >= 0 else None,
                pods=node.pods if name in seen else None,
                decision=decisions.get(name, ""),
                reason=reason,
                pod=verdict.pod if verdict is not None else "",
                evict=removal.evict if removal is not None else (),
                consolidation=None if is_same_reason else unconsolidated,
                spot=group in spots,
                notice=notice_view(notices.get(name)),
                lifecycle=due.get(name),
                is_restarted=restarts(plan, name),
            )
        )
    return tuple(rows)


def _removed_since(plan: Plan | None, entries: Iterable[JournalEntry]) -> set[str]:
    """Return the nodes whose removal has ended well since the decision."""
    decided_at = plan.at if plan is not None else 0.0
    gone: set[str] = set()
    for entry in entries:
        line = operation_of(entry) if entry.at >= decided_at else None
        if line is not None and line.kind is OperationKind.DELETE_NODES and line.succeeded:
            still_there = {name for name, _ in line.kept}
            gone.update(set(line.target_names) - still_there)
    return gone


def _decisions(plan: Plan | None) -> dict[str, str]:
    """Return what is decided of each node, removed ones first, then by name."""
    if plan is None:
        return {}
    decisions = dict.fromkeys(node_names(plan), STAYS)
    decisions |= dict.fromkeys(plan.unneeded, UNNEEDED)
    decisions |= {removal.node: REMOVED for removal in plan.removals}
    return dict(sorted(decisions.items(), key=lambda item: (_NODE_ORDER.index(item[1]), item[0])))


def node_data(row: NodeRow) -> dict[str, Any]:
    """Return a node under its stable keys."""
    data = as_json(row)
    for key, reason in (("reason", row.reason), ("consolidation", row.consolidation)):
        data[key] = coded(reason) if reason is not None else None
    data["lifecycle"] = verdict_data(row.lifecycle) if row.lifecycle is not None else None
    return data
