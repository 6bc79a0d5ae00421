"""`outscaler release CLUSTER`: overrides the circuit breaker for a limited time after a review, or
releases a claim permanently.

The circuit breaker (spec.maxDisruption) stops all removals once a plan would remove too large a
part of the cluster at once. Only an operator's override lets removals continue. The override
expires by itself, so that it cannot be left on by mistake.

A claim (store/group_ownership.py) reserves a node group for one cluster. --claim releases it, and
the next cluster that plans an operation on the group takes ownership.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cli.arguments import add_duration_argument, near
from chalicelib.cli.output import emit
from chalicelib.cli.store_access import (
    Facts,
    add_table_argument,
    check_group,
    note,
    open_store,
    stored_policy,
)
from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time
from chalicelib.views.cluster_view import as_json, breaker_view

if TYPE_CHECKING:
    from chalicelib.store import Store

# seconds; a longer override amounts to a policy without the limit
SHORTEST, LONGEST = 60.0, 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, --for, --yes, --claim and --table."""
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    help_text = "how long neither share nor limits per hour hold, from 1m to 24h (default: 1h)"
    add_duration_argument(parser, SHORTEST, LONGEST, "20m", default=3600.0, text=help_text)
    parser.add_argument(
        "--yes",
        action="store_true",
        help="release a circuit breaker that is not tripped without asking",
    )
    parser.add_argument(
        "--claim",
        default="",
        metavar="GROUP",
        help="release CLUSTER's claim on this node group, and leave the circuit breaker as it is",
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Store the override and return 0; it applies from the next pass on. Raises BadInput where
    nothing is tripped and the release in advance is not confirmed."""
    store = open_store(args)
    if args.claim:
        return _release_claim(store, args)
    stored_policy(store, args.name)
    memory, now = store.memory.look(args.name), time.time()
    until = now + args.lasts
    was_on = breaker_view(memory, now).on
    if not was_on and memory.released_until <= now and not args.yes:
        _confirm(args.name, until)
    store.breaker_overrides.release(args.name, until)
    note(store, args.name, "release", {"until": format_time(until), "was_on": was_on})
    released = breaker_view(msgspec.structs.replace(memory, released_until=until), now)
    data = {"name": args.name, "wasOn": was_on, **as_json(released)}
    text = f"{args.name}: the circuit breaker is released until {format_time(until)}; it was "
    emit(args.output, data, lambda: [f"{text}{'tripped' if was_on else 'not tripped'}"])
    return 0


def _confirm(cluster: str, until: float) -> None:
    """Ask whether to release a circuit breaker that is not tripped. Raises BadInput for another
    answer than yes, and where there is no terminal to ask."""
    problem, act = (
        "its circuit breaker is not tripped",
        f"suspend the limits of removals until {format_time(until)}",
    )
    if not sys.stdin.isatty():
        raise BadInput(cluster, problem, f"add --yes to {act} all the same")
    sys.stderr.write(f"{cluster}: {problem}. {act.capitalize()} all the same? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise BadInput(cluster, problem, "nothing is changed")


def _release_claim(store: Store, args: argparse.Namespace) -> int:
    """Release the claim and return 0. Raises BadInput where there is no claim, or where an open
    operation depends on it."""
    place, cluster = f"--claim {args.claim}", args.name
    claims = store.group_ownership.all()
    owned = [claim for claim in claims if claim.owner == cluster]
    group = args.claim
    with contextlib.suppress(BadInput):  # a claim may outlast what passes know of its group
        group = check_group(store, cluster, args.claim)
    matching = [claim for claim in owned if args.claim in (claim.key, claim.group)]
    matching = matching or [claim for claim in owned if claim.group == group]
    if not matching:
        owner = next(
            (claim.owner for claim in claims if args.claim in (claim.key, claim.group)), ""
        )
        keys = [claim.key for claim in owned]
        remedy = (
            f"its claims: {', '.join(keys[:5])}; outscaler get claims lists them"
            if keys
            else "it has no claims"
        )
        if close := near(args.claim, keys):
            remedy = f"did you mean {', '.join(close[:3])}?"
        raise BadInput(
            place, f"{cluster} has no claim on it" + (f", {owner} has" if owner else ""), remedy
        )
    if len(matching) > 1:
        keys = [claim.key for claim in matching]
        raise BadInput(place, f"means {len(keys)} claims: {', '.join(keys)}", "write one of these")
    claim = matching[0]
    if why_not := store.group_ownership.give_back(cluster, (claim.provider, claim.key)):
        raise BadInput(
            place,
            why_not,
            f"wait until that is over (outscaler get operations {cluster}), and repeat it",
        )
    facts: Facts = {
        "claim": claim.key,
        "provider": claim.provider,
        "since": format_time(claim.since),
    }
    note(store, cluster, "claim-released", facts)
    text = f"{cluster}: the claim on {claim.key} ({claim.provider}) is given back"
    emit(args.output, {"name": cluster, **facts}, lambda: [text])
    return 0
