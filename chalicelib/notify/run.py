"""Notifications of one tick: for each cluster whose policy has destinations, decide,
save, send, and save again.

Messages are saved before they are sent. A function that is killed in between sends them once more,
with the same ids. A quiet tick writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from chalicelib.journal import carry_over
from chalicelib.journal.journal import DecisionUnreadable, last_decision
from chalicelib.journal.redaction import without_names
from chalicelib.model.errors import OutscalerError
from chalicelib.model.health import HealthState
from chalicelib.model.notification import ONLY_WHERE_NAMED, NoticeSeverity
from chalicelib.model.operation import OperationKind
from chalicelib.model.pause import Pause
from chalicelib.notify.conditions import ClusterFacts, NoticeCondition, conditions, typed
from chalicelib.notify.delivery import ATTEMPTS, BACKOFF, Channels, attempt
from chalicelib.notify.notices import NoticeRules, NoticeState, bounded, decide, delivered
from chalicelib.policy.secret_names import named_by
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.notifications import Notifications
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.mode_guard import permitted
from chalicelib.store import Store
from chalicelib.store.codec import encode
from chalicelib.store.errors import StoreError
from chalicelib.views.journal_lines import operation_of, sentence

WITHIN = 15.0
"""Seconds for all deliveries of a tick; after as many more, the remaining
clusters wait for the next one."""
AT_ONCE = 50
"""Messages of one cluster that are tried in a tick."""
_ENTRIES = 100

MakeChannels = Callable[[str], Channels]


def notify(
    policies: Iterable[Policy],
    store: Store,
    channels: MakeChannels,
    clock: Callable[[], float],
    applied_at: Mapping[str, float],
) -> int:
    """Send what is due for these clusters (schedules applied, pauses not). applied_at: when each
    policy was (epoch seconds). Returns the number of delivered messages. Raises nothing: a cluster
    that fails is logged, and the next one follows."""
    notified = [
        policy for policy in policies if policy.notifications and policy.notifications.destinations
    ]
    if not notified:
        return 0
    until, sent = clock() + WITHIN, 0
    pauses: dict[str, tuple[Pause, ...] | StoreError] = {}
    with _contained(""):
        pauses = store.pauses.all_current()
    # another one in each minute, so that none is always the last
    first = int(clock() // 60) % len(notified)
    for policy in (*notified[first:], *notified[:first]):
        if clock() > until + WITHIN:
            logger.warning("notifications of some clusters wait for the next tick")
            break
        with _contained(policy.name):
            in_force = pauses.get(policy.name, ())
            if isinstance(in_force, StoreError):
                raise in_force
            paused = msgspec.structs.replace(policy, pauses=in_force)
            applied = applied_at.get(policy.name, 0.0)
            sent += _notify_cluster(paused, applied, store, channels, clock, until)
    return sent


@contextmanager
def _contained(cluster: str) -> Iterator[None]:
    try:
        yield
    except OutscalerError as error:
        logger.error("notifications failed", cluster=cluster, **failure(error))
    except Exception:
        logger.exception("notifications failed unexpectedly", cluster=cluster)


def _notify_cluster(
    policy: Policy,
    applied_at: float,
    store: Store,
    channels: MakeChannels,
    clock: Callable[[], float],
    until: float,
) -> int:
    settings = policy.notifications
    assert settings is not None
    data, version = store.notices().load(policy.name)
    before, now = load_state(data), clock()
    facts = facts_of(policy, applied_at, store, now)
    # A cluster that was off at the last tick has not had the time for a pass yet.
    facts = msgspec.structs.replace(facts, was_off=before.effective == HealthState.OFF.word)
    rules = NoticeRules(policy.name, settings, facts.acts, _is_quiet(settings, now))
    names = {name for _, name, _ in named_by(policy)}
    # Errors name secrets for operators, and messages leave the account.
    applying = [
        msgspec.convert(without_names(msgspec.to_builtins(condition), names), NoticeCondition)
        for condition in conditions(facts)
    ]
    state = decide(before, applying, _events(before, facts, store), rules, now)
    # The instant changes in each tick only where messages about operations are sent.
    journal_at = now if ONLY_WHERE_NAMED & set(settings.types) else state.journal_at
    word = permitted(policy).word
    state = msgspec.structs.replace(
        state, version=policy.version, effective=word, journal_at=journal_at
    )
    state = bounded(state, lambda stored: len(encode(stored)))
    if state != before:
        version = store.notices().save(policy.name, encode(state), version)
        if not version:
            return 0  # another tick works on it
    after, count = _send(state, rules, channels(policy.name), clock, until)
    if after != state:
        store.notices().save(policy.name, encode(after), version)
    return count


def _send(
    state: NoticeState,
    rules: NoticeRules,
    channels: Channels,
    clock: Callable[[], float],
    until: float,
) -> tuple[NoticeState, int]:
    """Send the messages that are due; return the state afterwards, and how many
    have arrived everywhere."""
    results: dict[str, dict[str, bool]] = {}
    waiting: set[str] = set()  # an end must not arrive before its beginning
    for message in state.messages:
        now = clock()
        if now >= until or len(results) >= AT_ONCE:
            break
        key = message.condition.key
        if key in waiting or message.next_at > now or rules.holds(message.condition):
            waiting.add(key)
            continue
        results[message.id], problems = attempt(message, rules.settings, channels, now)
        waiting.update({key} if problems else ())
        for destination, problem in problems.items():
            logger.warning(
                "notification not delivered",
                cluster=rules.cluster,
                destination=destination,
                notification=message.condition.type,
                attempt=message.attempts + 1,
                detail=problem,
            )
    after = delivered(state, results, clock(), attempts=ATTEMPTS, backoff=BACKOFF)
    lost = {message.id for message in after.dead} - {message.id for message in state.dead}
    if lost:
        remedy = f"outscaler notify dead {rules.cluster}"
        logger.error(
            "notifications are lost", cluster=rules.cluster, count=len(lost), remedy=remedy
        )
    return after, sum(all(arrived.values()) for arrived in results.values())


def load_state(data: bytes) -> NoticeState:
    """Return the stored state; an empty one where it cannot be read: then
    conditions are reported once more."""
    try:
        return msgspec.json.decode(data, type=NoticeState) if data else NoticeState()
    except (msgspec.MsgspecError, ValueError):
        return NoticeState()


def facts_of(policy: Policy, applied_at: float, store: Store, now: float) -> ClusterFacts:
    """Return what the tables say of a cluster at `now`. Raises StoreError."""
    passed = store.scan_states.last(policy.name)
    permission = permitted(msgspec.structs.replace(policy, pauses=()))
    decision = None
    if passed is not None and permission.plan:
        try:
            decision = last_decision(policy.name, passed, store.journal)
        except DecisionUnreadable as error:
            logger.warning(
                "decision not readable for notifications", cluster=policy.name, detail=str(error)
            )
    state = passed.state if passed is not None else None
    return ClusterFacts(
        name=policy.name,
        now=now,
        policy=policy,
        plans=permission.plan,
        acts=permission.act,
        state=state if state is not None else store.scan_states.due(policy.name),
        gauges=carry_over.read(passed.carry_over).gauges if passed is not None else {},
        memory=store.memory.glance(policy.name),
        pauses=policy.pauses,
        plan=decision.plan if decision is not None else None,
        applied_at=applied_at,
        pools=store.gauge_rings.overview(policy.name).pools if policy.managed_pools else (),
    )


def _events(old_state: NoticeState, facts: ClusterFacts, store: Store) -> Iterator[NoticeCondition]:
    """Return what happened since the last tick and has no end: another policy, another
    mode, finished operations."""
    policy, word, old_word = facts.policy, permitted(facts.policy).word, old_state.effective
    command = typed("history", facts.name)
    if old_state.version and policy.version != old_state.version:
        kind, key = "policy.changed", f"policy.changed/{policy.version}"
        text = (
            f"version {policy.version} of the policy is in force, after version {old_state.version}"
        )
        yield NoticeCondition(kind, key, NoticeSeverity.INFO, text, command=command)
    if old_word and word != old_word:
        kind, key = "mode.changed", f"mode.changed/{policy.version}/{word}/{facts.now // 60:.0f}"
        yield NoticeCondition(
            kind, key, NoticeSeverity.INFO, f"the mode is {word}, after {old_word}", command=command
        )
    settings = policy.notifications
    if settings is None or not old_state.journal_at or not ONLY_WHERE_NAMED & set(settings.types):
        return
    for entry in reversed(store.journal.recent(facts.name, _ENTRIES)):
        operation = operation_of(entry)
        if operation is None or not operation.succeeded or entry.at <= old_state.journal_at:
            continue
        if operation.kind in _OPERATION_TYPES:
            kind = _OPERATION_TYPES[operation.kind]
            yield NoticeCondition(
                kind,
                f"{kind}/{entry.operation}",
                NoticeSeverity.INFO,
                sentence(entry),
                group=entry.group,
                operation=entry.operation,
                plan=entry.plan,
                command=command,
            )


_OPERATION_TYPES = {OperationKind.SCALE_UP: "scaled.up", OperationKind.DELETE_NODES: "scaled.down"}


def _is_quiet(notifications: Notifications, now: float) -> bool:
    if not notifications.quiet_hours:
        return False
    from chalicelib.schedules.maintenance_windows import is_open

    return any(is_open(hours, now) for hours in notifications.quiet_hours)
