"""Decides which messages are due: one when a condition opens, one when it closes, a
reminder each day. Pure.

A message that is due becomes part of the state, so it is stored before it is sent, and is
sent until it has arrived.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from chalicelib.model.notification import IN_EVERY_MODE, ONLY_WHERE_NAMED, NoticeSeverity
from chalicelib.notify.conditions import NoticeCondition
from chalicelib.policy.settings.notifications import Notifications

REMINDED_EVERY = 86400.0
AN_HOUR = 3600.0
OPENINGS_AN_HOUR = 20
"""Openings of a cluster that are sent in an hour; the rest is counted in one message."""
MOST_NOTICES, MOST_MESSAGES = 200, 300
"""Conditions and messages that are kept of a cluster."""
LONGEST_MESSAGE, LONGEST_KEY = 500, 300
LARGEST_STATE = 300_000
"""Bytes of a cluster's state: it is one row of the table, which may have 400 KB."""
_SHORT, _FEW = 80, 50  # characters, and conditions and messages, of a state that would be too large
_TEXTS = ("message", "code", "cls", "group", "node", "command")
OPEN, REMINDER, CLOSED, ONCE = "open", "reminder", "closed", "once"


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition over time. since: when it began to apply; opened_at: when it was reported, 0.0:
    not yet; gone_since: since when it does not apply, 0.0: it does. Epoch seconds."""

    condition: NoticeCondition
    since: float
    opened_at: float = 0.0
    reminded_at: float = 0.0
    gone_since: float = 0.0
    unsent: bool = False


class NoticeMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that is to be sent. id: the same for every attempt. left: destinations that have
    not got it. attempts, next_at: of the delivery."""

    id: str
    at: float
    state: str
    condition: NoticeCondition
    since: float
    left: tuple[str, ...]
    attempts: int = 0
    next_at: float = 0.0


class NoticeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of a cluster. version, effective: of the policy that was seen last, and
    its mode; 0 and "" before the first. opened: instants of the openings of the last hour.
    suppressed: openings beyond the limit. journal_at: the newest entry that was looked at. dead:
    messages that could not be delivered, the newest first."""

    notices: dict[str, Notice] = {}
    messages: tuple[NoticeMessage, ...] = ()
    opened: tuple[float, ...] = ()
    suppressed: int = 0
    version: int = 0
    effective: str = ""
    journal_at: float = 0.0
    dead: tuple[NoticeMessage, ...] = ()


class NoticeRules(msgspec.Struct, frozen=True):
    """What is sent. acts: the cluster is active. quiet: quiet hours apply now."""

    cluster: str
    settings: Notifications
    acts: bool = True
    quiet: bool = False

    def wants(self, condition: NoticeCondition) -> bool:
        """Return whether the policy wants messages of this type and severity."""
        kind, types = condition.type, self.settings.types
        if types:
            chosen = kind in types
        else:
            chosen = (
                kind not in ONLY_WHERE_NAMED
                and condition.severity.rank >= self.settings.min_severity.rank
            )
        return chosen and (self.acts or kind.startswith(IN_EVERY_MODE))

    def holds(self, condition: NoticeCondition) -> bool:
        """Return whether a message waits for the end of quiet hours."""
        return self.quiet and condition.severity is NoticeSeverity.INFO


def decide(
    state: NoticeState,
    applying: Iterable[NoticeCondition],
    once: Iterable[NoticeCondition],
    rules: NoticeRules,
    now: float,
) -> NoticeState:
    """Return the next state, with the messages that are due. applying: conditions at `now`; once:
    single events, which open and have no end. The same input gives the same ids, so a repeated
    decision sends nothing new."""
    step = _Step(state, rules, now)
    lasting = (_as_opened(_short(condition), state) for condition in applying)
    current = {condition.key: condition for condition in lasting if rules.wants(condition)}
    for key, condition in current.items():
        step.apply(key, condition)
    for key in sorted(state.notices.keys() - current.keys()):
        step.end(key)
    for event in once:
        if rules.wants(event):
            step.send(_short(event), ONCE, now)
    return step.state()


def _as_opened(condition: NoticeCondition, state: NoticeState) -> NoticeCondition:
    """Return the condition with at least the severity of its opening. A back-off becomes
    less severe while no pod waits, and that is not its end."""
    notice = state.notices.get(condition.key)
    if notice is None or not notice.opened_at:
        return condition
    severity = max(
        condition.severity, notice.condition.severity, key=lambda severity: severity.rank
    )
    return msgspec.structs.replace(condition, severity=severity)


class _Step:
    def __init__(self, state: NoticeState, rules: NoticeRules, now: float) -> None:
        self._before, self._rules, self._now = state, rules, now
        self._notices = dict(state.notices)
        self._messages = list(state.messages)
        self._opened = [at for at in state.opened if now - at < AN_HOUR]
        self._suppressed = state.suppressed

    def apply(self, key: str, condition: NoticeCondition) -> None:
        """Open the notice of a condition, or remind of it, where that is due."""
        notice, now = self._notices.get(key), self._now
        if notice is None:
            if len(self._notices) >= MOST_NOTICES:
                return
            notice = Notice(condition, now)
        notice = msgspec.structs.replace(notice, gone_since=0.0)
        if notice.opened_at:
            if not notice.unsent and now - notice.reminded_at >= REMINDED_EVERY:
                notice = msgspec.structs.replace(notice, reminded_at=now, condition=condition)
                self.send(condition, REMINDER, notice.since, notice.opened_at)
        elif now - notice.since >= condition.opens_after and not self._rules.holds(condition):
            unsent = len(self._opened) >= OPENINGS_AN_HOUR
            if unsent:
                self._suppressed += 1
            else:
                self._opened.append(now)
                self.send(condition, OPEN, notice.since)
            notice = msgspec.structs.replace(
                notice, condition=condition, opened_at=now, reminded_at=now, unsent=unsent
            )
        self._notices[key] = notice

    def end(self, key: str) -> None:
        """Close the notice of a condition that does not apply, once it has not for long enough."""
        notice = self._notices[key]
        gone_since = notice.gone_since or self._now
        if notice.opened_at and self._now - gone_since < notice.condition.closes_after:
            self._notices[key] = msgspec.structs.replace(notice, gone_since=gone_since)
            return
        del self._notices[key]
        if notice.opened_at and not notice.unsent:
            self.send(notice.condition, CLOSED, notice.since, notice.opened_at)

    def send(
        self, condition: NoticeCondition, state: str, since: float, opened_at: float = 0.0
    ) -> None:
        """Add a message."""
        if len(self._messages) >= MOST_MESSAGES:
            return
        again = {REMINDER: self._now, ONCE: opened_at}.get(state, opened_at or self._now)
        text = f"{self._rules.cluster}\n{condition.key}\n{state}\n{again:.3f}"
        self._messages.append(
            NoticeMessage(
                id=hashlib.sha256(text.encode()).hexdigest()[:32],
                at=self._now,
                state=state,
                condition=condition,
                since=since,
                left=self._rules.settings.destinations,
                next_at=self._now,
            )
        )

    def state(self) -> NoticeState:
        """Return the state after the step, with one message about openings that were not sent."""
        if self._suppressed and len(self._opened) < OPENINGS_AN_HOUR:
            kind = "notifications.suppressed"
            text = (
                f"{self._suppressed} more conditions opened within an hour and were not sent one "
                "by one"
            )
            condition = NoticeCondition(
                kind, kind, NoticeSeverity.WARNING, text, command="outscaler ui"
            )
            self.send(condition, ONCE, self._now, self._now)
            self._suppressed = 0
        return msgspec.structs.replace(
            self._before,
            notices=self._notices,
            messages=tuple(self._messages),
            opened=tuple(self._opened),
            suppressed=self._suppressed,
        )


def bounded(state: NoticeState, size: Callable[[NoticeState], int]) -> NoticeState:
    """Return the state such that it has at most LARGEST_STATE bytes: with shorter texts, and if
    that is not enough, with the conditions that are open, the newest messages and no dead ones.
    size: its bytes when stored."""
    if size(state) <= LARGEST_STATE:
        return state
    notices = {
        key: msgspec.structs.replace(notice, condition=_short(notice.condition, _SHORT))
        for key, notice in state.notices.items()
    }
    messages = tuple(
        msgspec.structs.replace(message, condition=_short(message.condition, _SHORT))
        for message in state.messages
    )
    short = msgspec.structs.replace(state, notices=notices, messages=messages, dead=())
    if size(short) <= LARGEST_STATE:
        return short
    opened = [(key, notice) for key, notice in notices.items() if notice.opened_at]
    return msgspec.structs.replace(short, notices=dict(opened[:_FEW]), messages=messages[-_FEW:])


def _short(condition: NoticeCondition, longest: int = LONGEST_MESSAGE) -> NoticeCondition:
    """Return the condition with texts of at most `longest` characters. The
    key still identifies it."""
    changes: dict[str, Any] = {
        name: text[:longest] for name in _TEXTS if len(text := getattr(condition, name)) > longest
    }
    if len(condition.key) > LONGEST_KEY:
        digest = hashlib.sha256(condition.key.encode()).hexdigest()[:16]
        changes["key"] = f"{condition.key[: LONGEST_KEY - 17]}-{digest}"
    if any(len(pod) > longest for pod in condition.pods):
        changes["pods"] = tuple(pod[:longest] for pod in condition.pods)
    return msgspec.structs.replace(condition, **changes) if changes else condition


def delivered(
    state: NoticeState,
    results: Mapping[str, Mapping[str, bool]],
    now: float,
    *,
    attempts: int,
    backoff: float,
) -> NoticeState:
    """Return the state after an attempt. results: by message id, for each destination
    whether it has the message now.

    A message that no attempt of `attempts` delivers goes to the dead ones; each attempt waits twice
    as long as the one before, beginning with `backoff` seconds.
    """
    waiting: list[NoticeMessage] = []
    dead = list(state.dead)
    for message in state.messages:
        result = results.get(message.id)
        if result is None:
            waiting.append(message)
            continue
        missing = tuple(name for name in message.left if not result.get(name, False))
        tries = message.attempts + 1
        next_at = now + backoff * 2 ** min(tries - 1, 12)
        after = msgspec.structs.replace(message, left=missing, attempts=tries, next_at=next_at)
        if missing and tries < attempts:
            waiting.append(after)
        elif missing:
            dead.insert(0, after)
    return msgspec.structs.replace(state, messages=tuple(waiting), dead=tuple(dead[:20]))
