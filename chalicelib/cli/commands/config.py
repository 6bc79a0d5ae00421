"""`outscaler config`: shows the deployment that commands use, and where each of its settings is
from; `outscaler config use NAME` switches between the deployments that `outscaler login` has kept.

It calls neither AWS nor a cluster.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import msgspec

from chalicelib.cli.commands.ui import API
from chalicelib.cli.deployment_settings import (
    KeptLogins,
    Login,
    chosen_stage,
    load_logins,
    login_here,
    profile_path,
    settings_here,
    use_login,
)
from chalicelib.cli.output import Block, Table, emit, warn
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import ALLOWED_ENDPOINTS, SECRET_PREFIX, SHARED_SECRETS
from chalicelib.model.resource_names import POLICY_TABLE, PREFIX, TABLE, stage_prefix, state_table

_LOGIN = "outscaler login"


class ConfigSetting(msgspec.Struct, frozen=True):
    """A setting as commands use it. origin: the variable, the option or the command that
    it is from, "" for none."""

    name: str
    value: str
    origin: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `use` and NAME."""
    parser.add_argument(
        "action", nargs="?", choices=("use",), help="make NAME the deployment of later commands"
    )
    parser.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="a deployment of outscaler login"
    )


def run(args: argparse.Namespace) -> int:
    """Show the settings, or switch and show them. Returns 0. Raises BadInput for
    a name that is not kept."""
    if args.action:
        if not args.name:
            kept = [login.stack for login in load_logins().deployments]
            raise BadInput(
                "NAME",
                "is missing",
                f"kept: {', '.join(kept)}" if kept else f"{_LOGIN} STACK keeps one",
            )
        use_login(args.name)
        variable = next((name for name in (TABLE, PREFIX) if os.environ.get(name)), "")
        if variable:
            warn(f"{variable} is set and takes precedence: unset it, or give --stage {args.name}")
    logins, login = load_logins(), login_here()
    settings = _settings(login)
    emit(args.output, _data(logins, login, settings), lambda: _blocks(logins, login, settings))
    return 0


def _settings(login: Login | None) -> tuple[ConfigSetting, ...]:
    """Return the settings that a command without further arguments uses, in the order of precedence
    of store_access.open_store and deployment_settings."""
    from chalicelib.store.tables import policy_table_of

    stage = chosen_stage()
    of_login = f"{_LOGIN} {login.stack}" if login is not None else ""
    of_table = "" if stage else next((name for name in (TABLE, PREFIX) if os.environ.get(name)), "")
    table = login.table if login is not None else state_table(os.environ)
    own_policy_table = os.environ.get(POLICY_TABLE, "") if of_table else ""
    kept_policy_table = login.policy_table if login is not None else ""
    policy_table = (
        own_policy_table or kept_policy_table or (policy_table_of(table) if table else "")
    )
    variables = (
        []
        if stage
        else [name for name in ("AWS_DEFAULT_REGION", "AWS_REGION") if os.environ.get(name)]
    )
    region = os.environ[variables[0]] if variables else login.region if login is not None else ""
    deployment = settings_here().deployment
    published = of_login if login is not None and login.settings is not None else ""

    def origin(variable: str, otherwise: str) -> str:
        return published or (variable if os.environ.get(variable) else otherwise)

    derived = "the state table's name"
    otherwise = derived if deployment.prefix_known else "the default"
    of_policy_table = (
        POLICY_TABLE
        if own_policy_table
        else of_login
        if kept_policy_table
        else derived
        if table
        else ""
    )
    own_api = "" if stage else os.environ.get(API, "")
    api = own_api or (login.api if login is not None else "")
    return (
        ConfigSetting("stateTable", table, of_table or of_login),
        ConfigSetting("policyTable", policy_table, of_policy_table),
        ConfigSetting("region", region, variables[0] if variables else of_login if region else ""),
        ConfigSetting("prefix", stage_prefix(table), derived if stage_prefix(table) else ""),
        ConfigSetting("secretPrefix", deployment.secret_prefix, origin(SECRET_PREFIX, otherwise)),
        ConfigSetting(
            "sharedSecrets", ",".join(sorted(deployment.shared_secrets)), origin(SHARED_SECRETS, "")
        ),
        ConfigSetting(
            "allowedEndpoints",
            ",".join(sorted(deployment.endpoints)),
            origin(ALLOWED_ENDPOINTS, ""),
        ),
        ConfigSetting(
            "page",
            f"{api.rstrip('/')}/ui" if api else "",
            API if own_api else of_login if api else "",
        ),
    )


def _data(
    logins: KeptLogins, login: Login | None, settings: tuple[ConfigSetting, ...]
) -> dict[str, Any]:
    return {
        "deployment": login.stack if login is not None else "",
        "settings": {
            setting.name: {"value": setting.value, "from": setting.origin} for setting in settings
        },
        "current": logins.current,
        "deployments": [
            {"name": other.stack, "stateTable": other.table, "region": other.region}
            for other in logins.deployments
        ],
        "file": str(profile_path()),
    }


_WORDS = {
    "stateTable": "state table",
    "policyTable": "policy table",
    "region": "region",
    "prefix": "prefix of queues and functions",
    "secretPrefix": "secrets begin with",
    "sharedSecrets": "shared secrets",
    "allowedEndpoints": "allowed endpoints",
    "page": "status page",
}


def _blocks(
    logins: KeptLogins, login: Login | None, settings: tuple[ConfigSetting, ...]
) -> list[Block]:
    title = (
        f"Deployment {login.stack}"
        if login is not None
        else "No deployment of outscaler login is used"
    )
    rows = tuple(
        (_WORDS[setting.name], setting.value or "-", setting.origin or "-") for setting in settings
    )
    kept = tuple(
        ("*" if other.stack == logins.current else "", other.stack, other.table, other.region)
        for other in logins.deployments
    )
    return [
        Table(("setting", "value", "from"), rows, title=title),
        Table(
            ("current", "name", "state table", "region"),
            kept,
            title=f"Kept in {profile_path()}",
            empty=f"no deployment; {_LOGIN} STACK keeps one",
        ),
    ]
