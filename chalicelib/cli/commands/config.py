"""`outscaler config`: shows the deployment that commands use, and where each of its settings is
from; `outscaler config use NAME` switches between the deployments that `outscaler login` has kept.

It calls neither AWS nor a cluster.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
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
_DERIVED = "the state table's name"


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
        _use(args.name)
    logins = load_logins()
    login = login_here()
    settings = _settings(login)
    emit(args.output, _data(logins, login, settings), lambda: _blocks(logins, login, settings))
    return 0


def _use(name: str) -> None:
    """Switch to a deployment. Warns if a variable takes precedence over it."""
    if not name:
        stacks = [login.stack for login in load_logins().deployments]
        remedy = f"kept: {', '.join(stacks)}" if stacks else f"{_LOGIN} STACK keeps one"
        raise BadInput("NAME", "is missing", remedy)
    use_login(name)
    variable = _first_set(TABLE, PREFIX)
    if variable:
        warn(f"{variable} is set and takes precedence: unset it, or give --stage {name}")


def _first_set(*variables: str) -> str:
    """Return the first of these environment variables that has a value, "" for none."""
    return next((name for name in variables if os.environ.get(name)), "")


def _settings(login: Login | None) -> tuple[ConfigSetting, ...]:
    """Return the settings that a command without further arguments uses, in the order of precedence
    of store_access.open_store and deployment_settings."""
    stage = chosen_stage()
    of_login = f"{_LOGIN} {login.stack}" if login is not None else ""
    of_table = "" if stage else _first_set(TABLE, PREFIX)
    table = login.table if login is not None else state_table(os.environ)
    own_policy_table = os.environ.get(POLICY_TABLE, "") if of_table else ""
    region_variable = "" if stage else _first_set("AWS_DEFAULT_REGION", "AWS_REGION")
    own_api = "" if stage else os.environ.get(API, "")
    prefix = stage_prefix(table)
    is_published = login is not None and login.settings is not None
    return (
        ConfigSetting("stateTable", table, of_table or of_login),
        _policy_table(own_policy_table, login, table, of_login),
        _region(region_variable, login, of_login),
        ConfigSetting("prefix", prefix, _DERIVED if prefix else ""),
        *_permissions(of_login if is_published else ""),
        _page(own_api, login, of_login),
    )


def _policy_table(own: str, login: Login | None, table: str, of_login: str) -> ConfigSetting:
    from chalicelib.store.tables import policy_table_of

    if own:
        return ConfigSetting("policyTable", own, POLICY_TABLE)
    if login is not None and login.policy_table:
        return ConfigSetting("policyTable", login.policy_table, of_login)
    if table:
        return ConfigSetting("policyTable", policy_table_of(table), _DERIVED)
    return ConfigSetting("policyTable", "", "")


def _region(variable: str, login: Login | None, of_login: str) -> ConfigSetting:
    if variable:
        return ConfigSetting("region", os.environ[variable], variable)
    region = login.region if login is not None else ""
    return ConfigSetting("region", region, of_login if region else "")


def _permissions(of_login: str) -> Iterator[ConfigSetting]:
    """Yield what the functions permit. of_login: the command that the settings are from, if the
    deployment has published them."""
    deployment = settings_here().deployment

    def setting(name: str, value: str, variable: str, otherwise: str = "") -> ConfigSetting:
        origin = variable if os.environ.get(variable) else otherwise
        return ConfigSetting(name, value, of_login or origin)

    shared_secrets = ",".join(sorted(deployment.shared_secrets))
    endpoints = ",".join(sorted(deployment.endpoints))
    otherwise = _DERIVED if deployment.prefix_known else "the default"
    yield setting("secretPrefix", deployment.secret_prefix, SECRET_PREFIX, otherwise)
    yield setting("sharedSecrets", shared_secrets, SHARED_SECRETS)
    yield setting("allowedEndpoints", endpoints, ALLOWED_ENDPOINTS)


def _page(own_api: str, login: Login | None, of_login: str) -> ConfigSetting:
    if own_api:
        return ConfigSetting("page", f"{own_api.rstrip('/')}/ui", API)
    if login is not None and login.api:
        return ConfigSetting("page", f"{login.api.rstrip('/')}/ui", of_login)
    return ConfigSetting("page", "", "")


def _data(
    logins: KeptLogins, login: Login | None, settings: tuple[ConfigSetting, ...]
) -> dict[str, Any]:
    deployments = [
        {"name": other.stack, "stateTable": other.table, "region": other.region}
        for other in logins.deployments
    ]
    values = {
        setting.name: {"value": setting.value, "from": setting.origin} for setting in settings
    }
    return {
        "deployment": login.stack if login is not None else "",
        "settings": values,
        "current": logins.current,
        "deployments": deployments,
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
    title = "No deployment of outscaler login is used"
    if login is not None:
        title = f"Deployment {login.stack}"
    rows = tuple(
        (_WORDS[setting.name], setting.value or "-", setting.origin or "-") for setting in settings
    )
    deployments: list[tuple[str, ...]] = []
    for other in logins.deployments:
        mark = "*" if other.stack == logins.current else ""
        deployments.append((mark, other.stack, other.table, other.region))
    logins_table = Table(
        ("current", "name", "state table", "region"),
        tuple(deployments),
        title=f"Kept in {profile_path()}",
        empty=f"no deployment; {_LOGIN} STACK keeps one",
    )
    return [Table(("setting", "value", "from"), rows, title=title), logins_table]
