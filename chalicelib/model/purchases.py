"""The purchases of a scale-up request: how they are added, fulfilled, and reduced.

A purchase never moves the date of an earlier one. Nodes that join fulfil the oldest purchase first.
An instance that could not be created belongs to the newest purchase that was planned before it
existed. See docs/reference/node-groups.md "Scale-up requests".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import msgspec

from chalicelib.model.memory import PurchaseRow, ScaleUpRequest
from chalicelib.model.operation import AwaitedPods
from chalicelib.model.pod import PodClass

MOST_PURCHASES = 20
"""Purchases that a request keeps apart. Beyond it the newest ones are one row, so that
the oldest keeps its date."""
MOST_AWAITED = 50
"""Owners and classes of pods that a purchase remembers, those with the most pods."""
MOST_AWAITED_TOGETHER = 200
"""The same of all purchases of a request."""
_DIGEST = 8  # bytes


def request_of(purchases: Iterable[PurchaseRow], given_up: int = 0) -> ScaleUpRequest | None:
    """Return the request with these purchases, the oldest first; None without any."""
    rows = tuple(row for row in purchases if row.count > 0)
    if not rows:
        return None
    last = rows[-1]
    expected_at = max(row.expected_at for row in rows)
    is_plain = rows == (PurchaseRow(last.count, last.since, last.expected_at),)
    stored = () if is_plain else rows
    return ScaleUpRequest(sum(row.count for row in rows), last.since, expected_at, stored, given_up)


def with_purchase(request: ScaleUpRequest | None, purchase: PurchaseRow) -> ScaleUpRequest | None:
    """Return the request with one more purchase."""
    rows = request.purchases if request is not None else ()
    first = max(0, MOST_PURCHASES - 1)
    merged = reduce(_merged, (*rows[first:], purchase))
    remembered = sum(len(row.pods) for row in rows[:first])
    merged = _with_pods(merged, merged.pods, max(0, MOST_AWAITED_TOGETHER - remembered))
    return request_of((*rows[:first], merged), request.given_up if request is not None else 0)


def _merged(first_row: PurchaseRow, second_row: PurchaseRow) -> PurchaseRow:
    """Return two purchases as one, with the dates of the later one and the instances of both."""
    pods: dict[tuple[str, str], int] = {}
    for awaited in (*first_row.pods, *second_row.pods):
        key = awaited.owner, awaited.digest
        pods[key] = pods.get(key, 0) + awaited.count
    entries = tuple(AwaitedPods(owner, digest, count) for (owner, digest), count in pods.items())
    planned_at = min(
        first_row.planned_at or first_row.since, second_row.planned_at or second_row.since
    )
    more = first_row.more_pods + second_row.more_pods
    both = PurchaseRow(
        first_row.count + second_row.count,
        second_row.since,
        second_row.expected_at,
        planned_at,
        (),
        more,
    )
    return _with_pods(both, entries, MOST_AWAITED)


def _with_pods(purchase: PurchaseRow, pods: Sequence[AwaitedPods], most: int) -> PurchaseRow:
    """Return the purchase with at most this many of the entries; the pods
    of the others are summed."""
    remembered = pods[: min(most, MOST_AWAITED)]
    if len(remembered) < len(pods):
        ranked = sorted(pods, key=lambda awaited: (-awaited.count, awaited.owner, awaited.digest))
        remembered = ranked[: len(remembered)]
    forgotten = sum(awaited.count for awaited in pods) - sum(
        awaited.count for awaited in remembered
    )
    return msgspec.structs.replace(
        purchase, pods=tuple(remembered), more_pods=purchase.more_pods + forgotten
    )


def awaited_pods(
    counts: Mapping[int, int], classes: Sequence[PodClass]
) -> tuple[tuple[AwaitedPods, ...], int]:
    """Return the entries of a purchase, and how many further pods are only
    counted. counts: class -> pods."""
    entries = [
        AwaitedPods(owner_of(classes[cls]), digest_of(classes[cls]), count)
        for cls, count in counts.items()
    ]
    ranked = sorted(entries, key=lambda awaited: (-awaited.count, awaited.owner, awaited.digest))
    return tuple(ranked[:MOST_AWAITED]), sum(awaited.count for awaited in ranked[MOST_AWAITED:])


def with_planned_pods(
    request: ScaleUpRequest, on_nodes: Sequence[Mapping[int, int]], classes: Sequence[PodClass]
) -> ScaleUpRequest:
    """Return the request with the pods that are planned on its nodes now. on_nodes: class -> pods
    of each node that is still missing, those of the oldest purchase first."""
    rows: list[PurchaseRow] = []
    first, left = 0, MOST_AWAITED_TOGETHER
    for row, missing in zip(
        request.purchases, still_missing(request.purchases, len(on_nodes)), strict=True
    ):
        planned = Counter[int]()
        for counts in on_nodes[first : first + missing]:
            planned.update(counts)
        entries, more = awaited_pods(planned, classes)
        rows.append(_with_pods(msgspec.structs.replace(row, more_pods=more), entries, left))
        first, left = first + missing, left - len(rows[-1].pods)
    return request_of(rows, request.given_up) or request


def coming_for(request: ScaleUpRequest | None) -> tuple[tuple[str, int], ...]:
    """Return owner and number of the pods for which nodes are coming, those with the most pods
    first; pods that are only counted have the owner ""."""
    rows = request.purchases if request is not None else ()
    counts: dict[str, int] = {}
    for awaited in (entry for row in rows for entry in row.pods):
        counts[awaited.owner] = counts.get(awaited.owner, 0) + awaited.count
    more = sum(row.more_pods for row in rows)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return (*ranked, *((("", more),) if more else ()))


def owner_of(pod_class: PodClass) -> str:
    """Return the owner of a class of pods as namespace/kind/name; without an owner,
    the namespace and a slash."""
    owner = pod_class.owner
    return (
        f"{pod_class.namespace}/"
        if owner is None
        else f"{pod_class.namespace}/{owner.kind}/{owner.name}"
    )


def digest_of(pod_class: PodClass) -> str:
    """Return a digest of all that a class says; a class has no number that
    is the same in every pass."""
    content = repr(msgspec.to_builtins(pod_class, order="deterministic"))
    return hashlib.blake2b(
        content.encode("utf-8", "surrogatepass"), digest_size=_DIGEST
    ).hexdigest()


def still_missing(purchases: Sequence[PurchaseRow], outstanding: int) -> tuple[int, ...]:
    """Return how many nodes of each purchase are missing. outstanding: of all purchases
    together."""
    joined = max(0, sum(row.count for row in purchases) - max(0, outstanding))
    missing = []
    for row in purchases:
        fulfilled = min(row.count, joined)
        joined -= fulfilled
        missing.append(row.count - fulfilled)
    return tuple(missing)


def without_failed(
    purchases: Sequence[PurchaseRow], born: Iterable[float]
) -> tuple[PurchaseRow, ...]:
    """Return the purchases without instances that could not be created. born: when
    each of them existed first."""
    rows = list(purchases)
    for instant in born:
        older = [at for at, row in enumerate(rows) if row.count > 0 and _begun(row) <= instant]
        rest = [at for at, row in enumerate(rows) if row.count > 0]
        if not rest:
            break
        at = older[-1] if older else rest[0]
        rows[at] = msgspec.structs.replace(rows[at], count=rows[at].count - 1)
    return tuple(row for row in rows if row.count > 0)


def _begun(purchase: PurchaseRow) -> float:
    """Return the second from which instances of a purchase may exist;
    vendors state whole seconds."""
    return float(int(purchase.planned_at or purchase.since))


def after_shrink(request: ScaleUpRequest | None, nodes: int) -> ScaleUpRequest | None:
    """Return the request after the target was lowered by this many nodes. Those that were given up
    go first; otherwise the oldest purchases are over."""
    if request is None or nodes <= 0:
        return request
    given_up, rows = max(0, request.given_up - nodes), list(request.purchases)
    nodes -= request.given_up - given_up
    while rows and nodes > 0:
        taken = min(nodes, rows[0].count)
        nodes -= taken
        rows[0] = msgspec.structs.replace(rows[0], count=rows[0].count - taken)
        rows = rows if rows[0].count else rows[1:]
    return request_of(rows, given_up)
