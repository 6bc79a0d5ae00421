"""`outscaler login STACK`: keeps tables, region, settings and page of a deployment in a
file, for the commands that follow. `outscaler config` shows what is kept, and switches
between several deployments.

The file contains names and no credentials: AWS credentials stay where the AWS SDK looks for them.
Arguments and environment variables take precedence over it.
"""

from __future__ import annotations

import argparse
import re
import time

import msgspec

from chalicelib.cli.deployment_settings import (
    Login,
    login_here,
    profile_path,
    remove_login,
    save_login,
)
from chalicelib.cli.deployments import FoundDeployment, find_deployment
from chalicelib.cli.output import emit, warn
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import PublishedSettings, published

_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}\Z")
_REGION = re.compile(r"[a-z0-9-]{1,32}\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add STACK, --region and --forget."""
    parser.add_argument(
        "stack",
        nargs="?",
        default="",
        metavar="STACK",
        help="the stage of make deploy (dev, or outscaler-dev), or the name of a CloudFormation "
        "stack; without it the "
        "current one is shown",
    )
    parser.add_argument(
        "--region", default="", metavar="REGION", help="the AWS region (default: the environment's)"
    )
    parser.add_argument(
        "--forget",
        action="store_true",
        help="remove what is kept of STACK (default: the current one)",
    )


def run(args: argparse.Namespace) -> int:
    """Keep the deployment, show it, or forget it. Returns 0. Raises BadInput
    where the stack has no table."""
    if args.forget:
        removed = remove_login(args.stack)
        emit(
            args.output,
            {"removed": removed},
            lambda: ["forgotten" if removed else "nothing was kept"],
        )
        return 0
    if not args.stack:
        return _show(args, login_here())
    if not _STACK.match(args.stack):
        raise BadInput(
            "STACK",
            f"{args.stack[:60]!r} is not the name of a stack",
            "write dev, or a stack's name",
        )
    if args.region and not _REGION.match(args.region):
        raise BadInput(
            "--region", f"{args.region[:40]!r} is not a region", "write it as eu-central-2"
        )
    deployment = find_deployment(args.stack, args.region)
    login = Login(
        args.stack,
        deployment.table,
        deployment.policy_table,
        deployment.region,
        deployment.settings or _in_table(deployment),
        deployment.api,
    )
    save_login(login)
    return _show(args, login)


def _in_table(found: FoundDeployment) -> PublishedSettings | None:
    """Return the settings in the policy table, by which validate, init and import judge; None, and
    a warning, where they cannot be read."""
    from chalicelib.store import Store
    from chalicelib.store.errors import StoreError

    store = Store(
        found.table, clock=time.time, policy_table=found.policy_table, region=found.region
    )
    try:
        deployment = store.deployment_settings().read()
    except StoreError as error:
        warn(f"what {found.table} permits policies to name could not be read: {error}")
        return None
    return published(deployment) if deployment is not None else None


def _show(args: argparse.Namespace, login: Login | None) -> int:
    if login is None:
        raise BadInput(
            "outscaler login", "no deployment is kept", "outscaler login STACK keeps one"
        )
    data = {
        "stack": login.stack,
        "table": login.table,
        "policyTable": login.policy_table,
        "region": login.region,
        "settings": msgspec.to_builtins(login.settings),
        "api": login.api,
        "file": str(profile_path()),
    }
    if login.settings is None:
        warn(
            f"{login.stack} has not published what policies may name; outscaler login reads it "
            "after make deploy"
        )
    prefix = (
        f"; secrets begin with {login.settings.secret_prefix}" if login.settings is not None else ""
    )
    text = f"{login.stack}: table {login.table} in {login.region}, kept in {profile_path()}{prefix}"
    emit(args.output, data, lambda: [text])
    return 0
