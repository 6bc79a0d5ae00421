"""The settings by which commands judge a policy: those of the deployed functions, not those of this shell.

    with the tables       1  the row that make deploy, make finish or the emulation has written
                          2  the output of the CloudFormation stack that the tables belong to
    without, or if        3  what outscaler login has kept, if it is of the same table
    nothing is published  4  what follows from the name of the table and the environment

The first source that has settings counts. With the tables, sources 3 and 4 are reported in one line: the functions may
have other settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cli.login_profile import Login, load_login
from chalicelib.cli.output import warn
from chalicelib.model.policy_permissions import Deployment, deployment_of, deployment_published
from chalicelib.model.resource_names import PREFIX, state_table

if TYPE_CHECKING:
    from chalicelib.store import Store

_STAGE_TABLE = re.compile(r"(?P<prefix>outscaler-[a-z0-9-]{1,20})-state\Z")


class JudgedBy(msgspec.Struct, frozen=True):
    """The settings that a policy is judged by. certain: the deployment has published them, and they are current."""

    deployment: Deployment
    certain: bool


def settings_here(environment: Mapping[str, str] | None = None) -> Deployment:
    """Return the settings without a call to AWS: of the deployment of `outscaler login`, unless the environment names
    another table; otherwise what the environment says. A command may read files of its workstation. Raises BadInput
    that names the invalid variable."""
    variables = os.environ if environment is None else environment
    table = state_table(variables)
    login = load_login()
    if login is not None and table in ("", login.table):
        return _of_login(login, variables)
    return _of_names(table, variables)


def settings_of(store: Store) -> JudgedBy:
    """Return the current settings of the deployment that a store belongs to. Reports in one line if the deployment has
    published none. Raises StoreError, BadInput."""
    found = store.deployment_settings().read() or _of_stack(store)
    if found is not None:
        return JudgedBy(msgspec.structs.replace(found, files=True), certain=True)
    table = store.table.name
    login = load_login()
    of_login = login is not None and login.table == table
    guess = _of_login(login, os.environ) if login is not None and of_login else _of_names(table, os.environ)
    kept = of_login and login is not None and login.settings is not None
    warn(
        f"the deployment of table {table} has not published which secrets and hosts policies may name; judged by "
        f"{'what outscaler login has kept' if kept else 'its name and this environment'} "
        f"(secrets under {guess.secret_prefix}); make finish publishes it"
    )
    return JudgedBy(guess, certain=False)


def _of_stack(store: Store) -> Deployment | None:
    """Return the settings in the outputs of the stack that made the table; None where no stack did, where it has no
    such output, or where it cannot be asked."""
    if _STAGE_TABLE.match(store.table.name):
        return None  # by make deploy, which writes the row
    from chalicelib.aws.deployments import settings_of_table

    settings = settings_of_table(store.table.name)
    return deployment_published(settings) if settings is not None else None


def _of_login(login: Login, variables: Mapping[str, str]) -> Deployment:
    if login.settings is None:
        return _of_names(login.table, variables)
    return msgspec.structs.replace(deployment_published(login.settings), files=True)


def _of_names(table: str, variables: Mapping[str, str]) -> Deployment:
    """Return the settings that a table's name and the environment imply."""
    stage = _STAGE_TABLE.match(table)
    named = {PREFIX: stage["prefix"]} if stage is not None else {}
    return deployment_of({**variables, **named}, files=True)
