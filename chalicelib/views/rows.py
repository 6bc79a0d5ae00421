"""Rows of the tables of node groups and nodes, made once for the page, `outscaler
get` and the read routes.

A row joins what the last decision says (model/plan.py), what is remembered (model/memory.py), what
the last pass saw (model/overview.py) and what is under way. Instants are epoch seconds; JSON has
RFC 3339 (views.as_json).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum

import msgspec

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.model.pause import Pause, PausedPart, in_force
from chalicelib.model.plan import GroupVerdict, LifecycleVerdict, Plan
from chalicelib.model.purchases import coming_for
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.store.journal import JournalEntry
from chalicelib.views.cluster_view import (
    Instant,
    JoinsView,
    NoticeView,
    SpotView,
    coming_words,
    joins_view,
    node_views,
    notice_view,
    spot_view,
)
from chalicelib.views.consolidation import reasons_by_node
from chalicelib.views.journal_lines import ERRORS, error_words, operation_of
from chalicelib.views.lifecycle import count_words, due_counts, restarts, says

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
_AT_MAXIMUM = (ReasonCode.GROUP_MAX_SIZE, ReasonCode.POOL_MAX_SIZE)
_OF_PROVIDER = "provider/"  # of the kind of a gap


class Tone(StrEnum):
    """How urgent a status is. Every status has a word, too, so that none depends on a colour."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    BAD = "bad"


class GroupStatus(msgspec.Struct, frozen=True):
    """The state of a group: word is one of steady, growing, leaving, backing off, at its maximum,
    paused, unhealthy, not read. detail: a sentence without a time, "" where the word says it all.
    since, until: 0.0 for none. usually: the median of the seconds that its latest growths took,
    0.0: unknown."""

    word: str
    tone: Tone
    detail: str = ""
    since: Instant = Instant(0.0)
    until: Instant = Instant(0.0)
    usually: float = 0.0


class GroupRow(msgspec.Struct, frozen=True, rename="camel"):
    """A node group. group: the id, a detail for people; name: what they call it. provider: the key
    of the policy; provider_title: for people, such as Alibaba ESS. zone, machine: "" where unknown.
    price: per hour and node. cpu, memory: percent of allocatable that pods request, None where no
    node is ready or it is not known. aliases: further names by which a person may mean it.
    price_source: policy or provider; price_date: YYYY-MM-DD; no_price: why there is none, or why it
    is not compared with the others. joins: what its nodes have taught. spot: the risk of a spot
    group, None of another one. due: number of its nodes that should go although they are needed, by
    the reason:
    repair, expired, drifted; those that need not go yet by what holds them
    (lifecycle_view.due_counts)."""

    group: str
    name: str
    provider: str
    provider_title: str
    zone: str
    machine: str
    price: float | None
    currency: str
    ready: int
    coming: int
    target: int
    min: int
    max: int
    cpu: int | None
    memory: int | None
    status: GroupStatus
    aliases: tuple[str, ...] = ()
    price_source: str = ""
    price_date: str = ""
    no_price: str = ""
    joins: JoinsView = JoinsView()
    spot: SpotView | None = None
    due: dict[str, int] = {}

    @property
    def due_words(self) -> str:
        """Return `1 sick, 2 too old, 1 sick not for long enough yet`, "" where no node is due."""
        return count_words(self.due)


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """A node. group_name: what people call its group, "" for none. decision, reason, pod, evict:
    see views.NodeView. consolidation: why it is not consolidated, None where it is, where that is
    also why it is not removed, and where consolidation is off. spot: its vendor may take it back;
    notice: its vendor does. lifecycle: why it should go although it is needed; is_restarted: the
    decision restarts it."""

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
        return (
            says(self.lifecycle, is_restarted=self.is_restarted)
            if self.lifecycle is not None
            else ""
        )


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
    named = {group.group: group for group in groups}
    plain = {key: group.name or short_name(key) for key, group in named.items()}
    forms: list[dict[str, str]] = [
        plain,
        {key: f"{named[key].provider}/{name}" for key, name in plain.items()},
        {key: f"{name}/{named[key].zone}" for key, name in plain.items() if named[key].zone},
    ]
    by_name: dict[str, list[str]] = {}
    for key, name in plain.items():
        by_name.setdefault(name, []).append(key)
    names: dict[str, str] = {}
    for alike in by_name.values():
        usable = (form for form in forms if len({form.get(key, "") for key in alike}) == len(alike))
        form = next(usable, {})
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
    spoken = {key: {key, name, short_name(key), *aliases} - {""} for key, name, aliases in rows}
    exact = [key for key, name, _ in rows if text in (key, name)]
    tries = (exact[:1], [key for key in spoken if text in spoken[key]])
    folded = [key for key in spoken if text.casefold() in {word.casefold() for word in spoken[key]}]
    by_id = {key: name for key, name, _ in rows}
    for keys in (*tries, folded):
        if len(keys) == 1:
            return GroupMatch(keys[0])
        if keys:
            return GroupMatch(candidates=tuple(by_id[key] for key in keys))
    return GroupMatch(
        candidates=tuple(get_close_matches(text, list(by_id.values()), n=3, cutoff=0.5))
    )


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
    facts = {
        key: _GroupFacts(
            key,
            seen.get(
                key, GroupOverview(key, provider=verdicts[key].provider if key in verdicts else "")
            ),
            verdicts.get(key),
            memory.groups.get(key, GroupMemory()),
            tuple(
                operation
                for operation in memory.operations
                if operation.is_open and operation.spec.group == key
            ),
            plan.at if plan is not None else 0.0,
            unread.get(key, ""),
        )
        for key in (*verdicts, *unread)
    }
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


class _GroupFacts(msgspec.Struct, frozen=True):
    """What is known of one group. decided_at: of the decision (epoch seconds). unread: why the
    last pass could not read it."""

    group: str
    overview: GroupOverview
    verdict: GroupVerdict | None
    memory: GroupMemory
    operations: tuple[Operation, ...]
    decided_at: float
    unread: str

    @property
    def growths(self) -> list[Operation]:
        return [
            operation
            for operation in self.operations
            if operation.spec.kind is OperationKind.SCALE_UP
        ]

    @property
    def leaving(self) -> list[Operation]:
        return [
            operation
            for operation in self.operations
            if operation.spec.kind is OperationKind.DELETE_NODES
        ]

    @property
    def target(self) -> int:
        sizes = [operation.spec.to_size for operation in self.growths]
        return max(
            [self.verdict.target if self.verdict is not None else self.memory.target, *sizes]
        )

    @property
    def coming(self) -> int:
        """The nodes on their way: those that the decision counts, or that it has just requested."""
        upcoming = self.verdict.upcoming if self.verdict is not None else 0
        new = [growth.spec for growth in self.growths if growth.spec.created_at >= self.decided_at]
        return max([upcoming, *(spec.to_size - spec.from_size for spec in new)])


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
    gaps = (
        {gap.kind: gap.detail for gap in plan.gaps if gap.kind.startswith(_OF_PROVIDER)}
        if plan is not None
        else {}
    )
    for key in sorted({*memory.groups, *seen} - set(verdicts)):
        provider = seen[key].provider if key in seen else ""
        if plan is None:
            yield key, ""
        elif gaps and (not provider or _OF_PROVIDER + provider in gaps):
            yield key, gaps.get(_OF_PROVIDER + provider, "") or next(iter(gaps.values()))


def _pods_at_maximum(plan: Plan | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for waiting in plan.unschedulable if plan is not None else ():
        for group, reasons in waiting.reasons.items():
            if any(reason.code in _AT_MAXIMUM for reason in reasons):
                counts[group] += len(waiting.pods)
    return counts


def _due(plan: Plan | None, overview: ClusterOverview) -> dict[str, dict[str, int]]:
    group_of, verdicts = overview.group_of, dict[str, list[LifecycleVerdict]]()
    for verdict in plan.lifecycle if plan is not None else ():
        if verdict.node in group_of:
            verdicts.setdefault(group_of[verdict.node].group, []).append(verdict)
    return {group: due_counts(of_group) for group, of_group in verdicts.items()}


def _row(group: _GroupFacts, name: str, currency: str, context: _RowContext) -> GroupRow:
    overview, verdict = group.overview, group.verdict
    return GroupRow(
        group=group.group,
        name=name,
        provider=overview.provider,
        provider_title=provider_title(overview.provider),
        zone=overview.zone,
        machine=overview.machine,
        price=overview.price or None,
        currency=overview.currency or currency,
        ready=verdict.ready if verdict is not None else overview.ready,
        coming=group.coming,
        target=group.target,
        min=verdict.min if verdict is not None else overview.min,
        max=verdict.max if verdict is not None else overview.max,
        cpu=percent(overview.cpu_requested, overview.cpu),
        memory=percent(overview.memory_requested, overview.memory),
        status=next(_statuses(group, context)),
        aliases=tuple(sorted({overview.name, *overview.aliases} - {"", name})),
        price_source=overview.price_source,
        price_date=overview.price_date,
        no_price=overview.no_price,
        joins=joins_view(group.memory.joins, context.now),
        spot=spot_view(overview.spot, group.memory.risk, context.now),
        due=context.due.get(group.group, {}),
    )


def price_words(price: float | None, currency: str, source: str, date: str, missing: str) -> str:
    """Return `0.24 EUR (provider, 2026-11-27)`, or `no price: …`; "" if neither is known.
    missing: see GroupRow.no_price."""
    no_price = f"no price: {missing}" if missing else ""
    if price is None:
        return no_price
    origin = ", ".join(filter(None, (source, date)))
    amount = " ".join(filter(None, (f"{price:g}", currency, f"({origin})" if origin else "")))
    return "; ".join(filter(None, (amount, f"not compared: {missing}" if missing else "")))


def percent(part: float, whole: float) -> int | None:
    """Return a share in percent, None where there is nothing of which it is a share."""
    return round(100 * part / whole) if whole > 0 else None


def _statuses(group: _GroupFacts, context: _RowContext) -> Iterator[GroupStatus]:
    """Yield every status that applies, the one that is shown first."""
    verdict, memory, now = group.verdict, group.memory, context.now
    skipped = verdict.skipped if verdict is not None else None
    if group.unread or (skipped is not None and skipped.code is ReasonCode.GROUP_UNREADABLE):
        reason = group.unread or str(
            skipped.params.get("detail", "") if skipped is not None else ""
        )
        yield GroupStatus("not read", Tone.BAD, reason)
    if verdict is not None and not verdict.healthy:
        detail = skipped.params.get("detail", "") if skipped is not None else ""
        yield GroupStatus("unhealthy", Tone.BAD, str(detail))
    for pause in context.pauses:
        if pause.group in ("", group.group):
            yield GroupStatus(
                "paused", Tone.WARN, _paused(pause), Instant(pause.since), Instant(pause.until)
            )
    backoff = memory.backoff
    if backoff is not None and backoff.until >= now:
        detail = failure_words(backoff.cls, backoff.message, group.overview.zone)
        since, until = Instant(backoff.last_failed), Instant(backoff.until)
        yield GroupStatus("backing off", Tone.BAD, detail, since, until)
    if group.coming:
        began = [operation.spec.created_at for operation in group.growths]
        began = [memory.request.purchases[0].since] if memory.request is not None else began
        detail = f"{_nodes(group.coming)} on {'its' if group.coming == 1 else 'their'} way"
        words = coming_words(coming_for(memory.request))
        detail += f", coming for: {words}" if words else ""
        usually = usual_seconds(context.entries.get(group.group, ()), OperationKind.SCALE_UP)
        yield GroupStatus(
            "growing", Tone.INFO, detail, Instant(min(began, default=0.0)), usually=usually
        )
    if leaving := group.leaving:
        count = sum(len(operation.spec.targets) for operation in leaving) or len(leaving)
        since = Instant(min(operation.spec.created_at for operation in leaving))
        yield GroupStatus(
            "leaving", Tone.INFO, f"{_nodes(count)} leave{'s' if count == 1 else ''}", since
        )
    if (pods := context.waiting.get(group.group, 0)) and verdict is not None:
        need = f"{pods} pod{'' if pods == 1 else 's'} would need another node"
        yield GroupStatus("at its maximum", Tone.WARN, need)
    yield _steady(group, context)


def _steady(group: _GroupFacts, context: _RowContext) -> GroupStatus:
    """Return the status of a group of which nothing is to be said but what it could not do
    lately."""
    for entry in context.entries.get(group.group, ()):
        line = operation_of(entry) if context.now - entry.at < RECENT else None
        if line is not None and not line.succeeded and line.error_class:
            words = failure_words(line.error_class, line.message, group.overview.zone)
            verb = {
                OperationKind.SCALE_UP: "grow",
                OperationKind.RESTART_NODE: "restart a node",
            }.get(line.kind, "shrink")
            return GroupStatus("steady", Tone.OK, f"could not {verb}: {words}", Instant(entry.at))
        if line is not None:
            break
    return GroupStatus("steady", Tone.OK)


def _paused(pause: Pause) -> str:
    what = "" if pause.part is PausedPart.ALL else f"{pause.part.value}: "
    whole = "" if pause.group else "the whole cluster: "
    return f"{whole}{what}{pause.reason}{f', by {pause.by}' if pause.by else ''}"


def failure_words(error_class: str, message: str = "", zone: str = "") -> str:
    """Return why a vendor did not do what it was asked, such as `sold out in ch-gva-2`. A message
    says nothing more where machines are sold out."""
    if error_class == "OutOfStock":
        return f"{ERRORS[error_class]} in {zone}" if zone else ERRORS[error_class]
    return error_words(error_class, message=message) or "failed"


def _nodes(count: int) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{count} node{'' if count == 1 else 's'}"


def usual_seconds(entries: Iterable[JournalEntry], kind: OperationKind) -> float:
    """Return the median of the seconds that the latest such operations took, 0.0 where none is
    known. entries: of one group, newest first."""
    seconds = [
        line.seconds
        for line in map(operation_of, entries)
        if line is not None and line.kind is kind and line.succeeded and line.seconds is not None
    ]
    latest = sorted(seconds[:LATEST])
    return (latest[(len(latest) - 1) // 2] + latest[len(latest) // 2]) / 2 if latest else 0.0


# -- rows of nodes


def node_rows(
    plan: Plan | None, overview: ClusterOverview, groups: Sequence[GroupRow], memory: Memory
) -> tuple[NodeRow, ...]:
    """Return a row for each node: those of the decision first, removed ones before the others, then
    those that only the overview has. memory: for the notices of vendors."""
    names = {row.group: row.name for row in groups}
    seen = {node.name: node for node in overview.nodes}
    views = {view.node: view for view in node_views(plan)} if plan is not None else {}
    consolidation, spots = (
        reasons_by_node(plan),
        {row.group for row in groups if row.spot is not None},
    )
    risks = [known.risk for known in memory.groups.values() if known.risk is not None]
    notices = {name: notice for risk in risks for name, notice in risk.notices.items()}
    due = {verdict.node: verdict for verdict in plan.lifecycle} if plan is not None else {}
    rows = []
    for name in (*views, *(name for name in seen if name not in views)):
        node, view = seen.get(name), views.get(name)
        member = node is not None and 0 <= node.group < len(overview.groups)
        own = consolidation.get(name)
        same = (
            own is not None
            and view is not None
            and view.reason is not None
            and view.reason.code is own.code
        )
        group = overview.groups[node.group].group if node is not None and member else ""
        group = group or (view.group if view is not None else "")
        rows.append(
            NodeRow(
                node=name,
                group=group,
                group_name=names.get(group, short_name(group) if group else ""),
                machine=node.machine if node is not None else "",
                zone=node.zone if node is not None else "",
                created=Instant(node.created if node is not None else 0.0),
                cpu=node.cpu if node is not None and node.cpu >= 0 else None,
                memory=node.memory if node is not None and node.memory >= 0 else None,
                pods=node.pods if node is not None else None,
                decision=view.decision if view is not None else "",
                reason=view.reason if view is not None else None,
                pod=view.pod if view is not None else "",
                evict=view.evict if view is not None else (),
                consolidation=None if same else own,
                spot=group in spots,
                notice=notice_view(notices.get(name)),
                lifecycle=due.get(name),
                is_restarted=restarts(plan, name),
            )
        )
    return tuple(rows)
