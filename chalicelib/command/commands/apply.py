"""`outscaler apply FILE`: stores the document as the cluster's policy from the next tick on and keeps the old version.

The write is conditional on the version it replaces, so two operators cannot overwrite each other's policy unnoticed.
Applying the same text again changes nothing and creates no version.
"""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING

from chalicelib.command import apply_gate
from chalicelib.command.deployment_settings import settings_of
from chalicelib.command.operator_journal import note
from chalicelib.command.output import emit, warn
from chalicelib.command.policy_files import load_document, place_of, read_document
from chalicelib.command.store_access import add_table_argument, open_store, table_name
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.admission import Purpose
from chalicelib.policy.compiled import compiled
from chalicelib.policy.load import digest

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE, --dry-run and --table."""
    parser.add_argument("file", metavar="FILE", help="policy document, or - for standard input")
    parser.add_argument("--dry-run", action="store_true", help="show the difference, store nothing")
    apply_gate.add_arguments(parser)
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Store the policy. Returns 0 if it is now in force, or already was."""
    text = read_document(args.file)
    store, deployment = _deployed(args, text)
    policy, warnings = load_document(text, place_of(args.file), Purpose.STORED, deployment)
    for warning in warnings:
        warn(warning)
    current = store.policies.current(policy.name)
    before = current.version if current else None
    if current is not None and current.digest == digest(text):
        if not args.dry_run:
            _compile_again(store, current, policy, text)
            _switch_on(args, policy)
        return _say(args, policy.name, "unchanged", current.version)
    if args.dry_run:
        diff = _difference(current.text if current else "", text, policy.name, before)
        return _say(args, policy.name, "would change" if current else "would create", (before or 0) + 1, diff)
    version = _store(args, store, policy, text, current, deployment)
    return _say(args, policy.name, "changed" if current else "created", version)


def _deployed(args: argparse.Namespace, text: str) -> tuple[Store, Deployment]:
    """Return the deployment's tables, and what its functions permit. Where the tables cannot be read, the mistakes of
    the document that are known without them are raised first."""
    try:
        store = open_store(args)
        return store, settings_of(store).deployment
    except Exception:
        load_document(text, place_of(args.file), Purpose.STORED)
        raise


def put_in_force(args: argparse.Namespace, store: Store, text: str, place: str) -> int:
    """Store a changed text of a policy as its next version and return the number, without output. args: of a command
    with the arguments of apply_gate. Raises BadInput as `run` does."""
    deployment = settings_of(store).deployment
    policy, _ = load_document(text, place, Purpose.STORED, deployment)
    current = store.policies.current(policy.name)
    if current is not None and current.digest == digest(text):
        return current.version
    return _store(args, store, policy, text, current, deployment)


def _store(
    args: argparse.Namespace,
    store: Store,
    policy: Policy,
    text: str,
    stored_policy: StoredPolicy | None,
    deployment: Deployment,
) -> int:
    from chalicelib.store.errors import PolicyChanged

    accepted = apply_gate.check(args, policy, _readable(stored_policy, deployment), deployment)
    before = stored_policy.version if stored_policy else None
    try:
        version = store.policies.put(
            policy.name, text, digest(text), before, webhook=policy.webhook.secret, compiled=compiled(policy, text)
        )
    except PolicyChanged as error:
        raise BadInput(
            policy.name,
            f"another version was stored in the meantime ({error})",
            f"review it with outscaler get policy {policy.name}, then apply again",
        ) from None
    facts: dict[str, str | int | float | bool] = {"version": version, "digest": digest(text)}
    if accepted.reason:
        facts |= {"accepted": ", ".join(accepted.findings), "reason": accepted.reason}
    note(store, policy.name, "policy", facts)
    _switch_on(args, policy)
    return version


def _readable(stored_policy: StoredPolicy | None, deployment: Deployment) -> Policy | None:
    """Return the policy in force; None where there is none, or where the functions cannot use it."""
    if stored_policy is None:
        return None
    try:
        return load_document(stored_policy.text, stored_policy.name, Purpose.STORED, deployment)[0]
    except BadInput:
        return None


def _compile_again(store: Store, stored_policy: StoredPolicy, policy: Policy, text: str) -> None:
    """Store the compiled form with the version in force, if that has none of this release.

    text: what the policy was read from. Its digest leaves line ends aside, so it may differ from the text that is
    stored, which then stays without a form.
    """
    form = compiled(policy, text)
    if form is None or text != stored_policy.text or form == stored_policy.compiled:
        return
    from chalicelib.store.errors import StoreError

    try:
        store.policies.compile_again(stored_policy, form)
    except StoreError as error:
        warn(f"{policy.name}: the compiled form could not be stored, functions read the text: {error}")


def _switch_on(args: argparse.Namespace, policy: Policy) -> None:
    """Enable the functions of the policy's providers, where the deployment disables unused ones."""
    from chalicelib.command.event_sources import switch_on

    for problem in switch_on(table_name(args), policy.providers):
        warn(problem)


def _difference(old: str, new: str, name: str, before: int | None) -> str:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"{name} version {before or 0}", f"{name} as given", lineterm=""
    )
    return "\n".join(lines)


def _say(args: argparse.Namespace, name: str, result: str, version: int, diff: str = "") -> int:
    data = {"name": name, "result": result, "version": version} | ({"diff": diff} if args.dry_run else {})
    text = f"{name}: {result}, version {version}"
    emit(args.output, data, lambda: [f"{text}\n{diff}" if diff else text])
    return 0
