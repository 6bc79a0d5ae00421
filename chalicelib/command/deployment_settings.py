"""The settings by which commands judge a policy: those of the deployed functions, not those of this shell.

    with the tables       1  the row that make deploy or the emulation has written
                          2  the output of the CloudFormation stack that the tables belong to
    without, or if        3  what outscaler login has kept, if it is of the same table
    nothing is published  4  what follows from the name of the table and the environment

The first source that has settings counts. With the tables, sources 3 and 4 are reported in one line: the functions may
have other settings.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec

from chalicelib.command.login_profile import Login, load_login
from chalicelib.command.output import warn
from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy_permissions import Deployment, deployment_of, deployment_published
from chalicelib.model.resource_names import PREFIX, state_table

if TYPE_CHECKING:
    from chalicelib.store import Store

_STAGE_TABLE = re.compile(r"(?P<prefix>outscaler-[a-z0-9-]{1,20})-state\Z")
_PUBLISH = "make deploy, or another deployment of the stack, publishes it"


class JudgedBy(msgspec.Struct, frozen=True):
    """The settings that a policy is judged by. notice: one line where the deployment has not published them; empty
    where it has, and where no deployment is known."""

    deployment: Deployment
    notice: str = ""


def settings_here() -> JudgedBy:
    """Return the settings without a call to AWS: of the deployment of `outscaler login`, unless the environment names
    another table; otherwise what the environment says. A command may read files of its workstation. Raises BadInput
    that names the invalid variable."""
    table = state_table(os.environ)
    login = load_login()
    if login is not None and table in ("", login.table):
        return _of_login(login)
    guess = _of_names(table, "outscaler login reads it")
    return JudgedBy(guess.deployment) if guess.deployment.prefix_known else guess  # a stage's own prefix is no guess


def settings_of(store: Store) -> JudgedBy:
    """Return the current settings of the deployment that a store belongs to. Warns if it has published none. Raises
    StoreError, BadInput."""
    published = published_by(store)
    if published is not None:
        return JudgedBy(published)
    login = load_login()
    table = store.table.name
    guess = _of_login(login) if login is not None and login.table == table else _of_names(table, _PUBLISH)
    if guess.notice:
        warn(guess.notice)
        return guess
    notice = f"table {table} does not say what policies may name; judged by what outscaler login has kept; {_PUBLISH}"
    warn(notice)
    return JudgedBy(guess.deployment, notice)


def known_settings(store: Store) -> Deployment | None:
    """Return what the deployment of a store has published, for commands that only show how policies are; None where it
    is not known. Warns about settings that cannot be read."""
    try:
        return published_by(store)
    except OutscalerError as error:
        warn(str(error))
        return None


def on_this_machine(deployment: Deployment) -> Deployment:
    """Return the settings for a command that calls vendors itself: it may call servers on this machine."""
    return msgspec.structs.replace(deployment, loopback=True)


def published_by(store: Store) -> Deployment | None:
    """Return what the deployment of a store has published: in its policy table, or in the outputs of the stack that
    made the tables. None where it has published nothing. Raises StoreError, BadInput."""
    published = store.deployment_settings().read()
    if published is None and not _STAGE_TABLE.match(store.table.name):  # a stage of make deploy has only the row
        from chalicelib.command.deployments import settings_of_table

        settings = settings_of_table(store.table.name)
        published = deployment_published(settings) if settings is not None else None
    return msgspec.structs.replace(published, files=True) if published is not None else None


def _of_login(login: Login) -> JudgedBy:
    if login.settings is None:
        return _of_names(login.table, f"{_PUBLISH}, and outscaler login reads it")
    return JudgedBy(msgspec.structs.replace(deployment_published(login.settings), files=True))


def _of_names(table: str, remedy: str) -> JudgedBy:
    """Return the settings that a table's name and the environment imply. table: "" where none is known."""
    stage = _STAGE_TABLE.match(table)
    named = {PREFIX: stage["prefix"]} if stage is not None else {}
    guess = deployment_of({**os.environ, **named}, files=True)
    if not table:
        return JudgedBy(guess)
    return JudgedBy(
        guess,
        f"what the deployment of table {table} permits policies to name is not known; judged by its name and this "
        f"environment: secrets under {guess.secret_prefix}; {remedy}",
    )
