"""Opens the store for commands that need AWS, and finds the clusters and their node groups in it.
The store is imported only by these commands."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chalicelib.cli.arguments import AmbiguousGroup, meant_group
from chalicelib.cli.deployments import caller
from chalicelib.cli.output import warn
from chalicelib.journal.journal import DecisionUnreadable, LastDecision, last_decision
from chalicelib.model.errors import BadInput
from chalicelib.model.overview import GroupOverview
from chalicelib.model.resource_names import POLICY_TABLE, state_table

if TYPE_CHECKING:
    from chalicelib.cli.deployment_settings import Login
    from chalicelib.store import Store, StoredPolicy


def add_table_argument(parser: argparse.ArgumentParser) -> None:
    """Add --table NAME and --policy-table NAME for the commands that need AWS."""
    parser.add_argument(
        "--table",
        default="",
        metavar="NAME",
        help=(
            "DynamoDB table (default: $OUTSCALER_TABLE, else the state table of the deployment "
            "$OUTSCALER_PREFIX)"
        ),
    )
    parser.add_argument(
        "--policy-table",
        default="",
        metavar="NAME",
        help="DynamoDB table of the policies "
        "(default: $OUTSCALER_POLICY_TABLE, else the name of the other table and -policies)",
    )


def open_store(args: argparse.Namespace) -> Store:
    """Open the store on --table and --policy-table, or on the tables that the environment names.
    Raises BadInput if neither names them, NewerSchema if a newer release has written the tables.

    A given --table is never combined with the environment's policy table, which belongs to a
    different state table. The deployment's region is used where the environment names none, or
    --stage names the deployment; botocore reads one of both variables only."""
    table = table_name(args)
    from chalicelib.cli.deployment_settings import chosen_stage
    from chalicelib.store import Store
    from chalicelib.store.errors import NewerSchema, StoreError

    login, stage = _login(args), "" if args.table else chosen_stage()
    of_environment = (
        ""
        if args.table or stage or not state_table(os.environ)
        else os.environ.get(POLICY_TABLE, "")
    )
    policy_table = args.policy_table or of_environment
    if login is not None:
        policy_table = policy_table or login.policy_table
        if stage and login.region:
            os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = login.region
        region = os.environ.get("AWS_REGION") or login.region
        if region and not os.environ.get("AWS_DEFAULT_REGION"):
            os.environ["AWS_DEFAULT_REGION"] = region
    store = Store(table, clock=time.time, policy_table=policy_table)
    try:
        store.schema.check()
    except NewerSchema:
        raise
    except StoreError:
        # a caller without access to the state table may continue; requests that
        # need it fail by themselves
        pass
    return store


def table_name(args: argparse.Namespace) -> str:
    """Return the state table's name; raises BadInput if it is not configured."""
    login = _login(args)
    table = str(args.table) or (login.table if login is not None else state_table(os.environ))
    if not table:
        from chalicelib.cli.deployment_settings import load_logins

        several = (
            "outscaler config use NAME chooses a kept deployment"
            if load_logins().deployments
            else ""
        )
        raise BadInput(
            "--table",
            "is not given, and OUTSCALER_TABLE is not set",
            several
            or "name the deployment's DynamoDB table, set OUTSCALER_PREFIX as make deploy prints "
            "it, "
            "or run outscaler login STACK once",
        )
    return table


def _login(args: argparse.Namespace) -> Login | None:
    """Return what `outscaler login` has kept of the deployment of --table, otherwise of
    the one that is used here."""
    from chalicelib.cli.deployment_settings import login_here, login_of

    return login_of(args.table) if args.table else login_here()


def not_moved(store: Store) -> str:
    """Return a sentence about policies that are stored in the old place and are not used;
    "" where there are none."""
    from chalicelib.store.policies import not_used

    names = store.moving.not_moved(store.policies.all_current())
    return f"{not_used(names)}; run outscaler migrate" if names else ""


def stored_policy(store: Store, name: str) -> StoredPolicy:
    """Return a cluster's policy in force; raises BadInput with the nearest name for
    a cluster that has none."""
    stored = store.policies.current(name)
    if stored is not None:
        return stored
    names = store.policies.names()
    near = get_close_matches(name, names, n=1)
    remedy = f"known: {', '.join(names[:10])}" if names else "store one with outscaler apply"
    raise BadInput(name, "no such cluster", f"did you mean {near[0]}?" if near else remedy)


def only_cluster(store: Store, command: str, otherwise: str = "") -> str:
    """Return the only cluster. command: for the error; otherwise: what else helps where there are
    several. Raises BadInput where there are several, or none."""
    names = store.policies.names()
    if len(names) == 1:
        return names[0]
    remedy = (
        f"write one of {', '.join(names[:10])}{otherwise}"
        if names
        else "store a policy with outscaler apply"
    )
    raise BadInput(command, "needs a cluster's name", remedy)


def check_group(
    store: Store,
    cluster: str,
    group: str,
    further: Collection[str] = (),
    *,
    place: str = "--group",
    otherwise: str = "",
) -> str:
    """Return the id of the node group of a cluster that a person means by its id, its name or an
    alias. Raises BadInput with the nearest names for one that no pass of the cluster has seen.

    further: ids that are accepted, too. place: the argument. otherwise: what to do about a
    group that is still to come.
    """
    from chalicelib.policy.load import load

    decision, _ = load_decision(store, cluster)
    planned = {verdict.group for verdict in decision.plan.groups} if decision is not None else set()
    seen = {overview.group: overview for overview in store.gauge_rings.overview(cluster).groups}
    ids = {*planned, *store.memory.look(cluster).groups, *seen, *further}
    if ids:
        try:
            return meant_group(
                [seen.get(key, GroupOverview(key)) for key in sorted(ids)], group, place
            )
        except AmbiguousGroup:
            raise
        except BadInput as error:
            raise BadInput(error.place, error.problem, f"{error.remedy}{otherwise}") from None
    named = ""
    with contextlib.suppress(BadInput):
        policy, _ = load(stored_policy(store, cluster).text, place=cluster)
        named = ", ".join([item.id for item in policy.node_groups][:10])
    raise BadInput(
        place,
        f"no pass of {cluster} has seen a node group yet, so that {group!r} cannot be checked",
        (
            f"{f'its policy names {named}; ' if named else ''}repeat it after the first "
            f"pass{otherwise}"
        ),
    )


def load_decision(store: Store, cluster: str) -> tuple[LastDecision | None, str]:
    """Return the last decision and "", or None and why there is none that can be
    shown. Raises StoreError."""
    passed = store.scan_states.last(cluster)
    if passed is None:
        return None, f"{cluster}: no pass has been made yet"
    try:
        decision = last_decision(cluster, passed, store.journal)
    except DecisionUnreadable as error:
        return None, str(error)
    return decision, "" if decision else f"{cluster}: the journal has no decision"


def required_decision(store: Store, cluster: str) -> LastDecision:
    """Return the last decision. Raises BadInput where there is none."""
    decision, problem = load_decision(store, cluster)
    if decision is None:
        raise BadInput(
            cluster,
            problem.removeprefix(f"{cluster}: "),
            "outscaler plan --kubeconfig FILE plans now",
        )
    return decision


if TYPE_CHECKING:
    from chalicelib.store import Store

Facts = Mapping[str, str | int | float | bool]


def note(
    store: Store,
    cluster: str,
    kind: str,
    facts: Facts,
    *,
    group: str = "",
    operation: str = "",
    at: float = 0.0,
) -> None:
    """Append one line. facts: see JournalEntry; `by` is added unless it is given. at:
    epoch seconds; now, if not given. The act is done already, so a journal that cannot
    be written is a warning."""
    from chalicelib.store import JournalEntry
    from chalicelib.store.errors import StoreError

    entry = JournalEntry(
        at=at or time.time(),
        kind=kind,
        group=group,
        operation=operation,
        facts={"by": facts.get("by") or caller(), **facts},
    )
    try:
        store.journal.append(cluster, entry)
    except StoreError as error:
        warn(f"{cluster}: done ({kind}), but the journal could not be written: {error}")
