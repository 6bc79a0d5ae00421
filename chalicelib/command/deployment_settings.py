"""The settings by which commands judge a policy: those of the deployed functions, not those of this shell.

    with the tables       1  the row that make deploy or the emulation has written
                          2  the output of the CloudFormation stack that the tables belong to
    without, or if        3  what outscaler login has kept, if it is of the same table
    nothing is published  4  what follows from the name of the table and the environment

The first source that has settings counts. With the tables, sources 3 and 4 are reported in one line: the functions may
have other settings.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chalicelib.command.output import warn
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.policy_permissions import Deployment, PublishedSettings, deployment_of, deployment_published
from chalicelib.model.resource_names import PREFIX, stage_prefix, state_table
from chalicelib.net.bounded_files import content

if TYPE_CHECKING:
    from chalicelib.store import Store

_PUBLISH = "make deploy, or another deployment of the stack, publishes it"
_LARGEST = 1_000_000  # bytes of a profile; the settings may list 200 secrets and 200 hosts


class JudgedBy(msgspec.Struct, frozen=True):
    """The settings that a policy is judged by. notice: one line where the deployment has not published them; empty
    where it has, and where no deployment is known."""

    deployment: Deployment
    notice: str = ""


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One deployment, as `outscaler login` keeps it. policy_table: "" where its name follows from the other one.
    settings: what the deployment permits policies to name, None where it has not published that."""

    stack: str
    table: str
    policy_table: str = ""
    region: str = ""
    settings: PublishedSettings | None = None


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
    login, table = load_login(), store.table.name
    guess = _of_login(login) if login is not None and login.table == table else _of_names(table, _PUBLISH)
    kept = f"table {table} does not say what policies may name; judged by what outscaler login has kept; {_PUBLISH}"
    warn(guess.notice or kept)
    return guess if guess.notice else JudgedBy(guess.deployment, kept)


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
    if published is None and not stage_prefix(store.table.name):  # a stage of make deploy has only the row
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
    prefix = stage_prefix(table)
    guess = deployment_of({**os.environ, **({PREFIX: prefix} if prefix else {})}, files=True)
    notice = (
        f"what the deployment of table {table} permits policies to name is not known; judged by its name and this "
        f"environment: secrets under {guess.secret_prefix}; {remedy}"
    )
    return JudgedBy(guess, notice if table else "")


# -- the file in which `outscaler login` keeps the names of a deployment


def profile_path() -> Path:
    """Return the file's path: $OUTSCALER_PROFILE, otherwise a file in the user's directory for settings."""
    profile = os.environ.get("OUTSCALER_PROFILE", "")
    if profile:
        return Path(profile)
    settings = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(settings) if settings else Path.home() / ".config") / "outscaler" / "profile.json"


def load_login() -> Login | None:
    """Return the deployment that is kept; None where there is none. Raises BadInput for a file that is not one of
    ours."""
    path = profile_path()
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(content(path, _LARGEST), type=Login)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(str(path), f"cannot be read ({error})", "outscaler login STACK writes it again") from None


def save_login(login: Login) -> None:
    """Write the file; a reader sees the old one or the new one. Raises OSError."""
    path = profile_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(login), indent=2) + b"\n")
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def remove_login() -> bool:
    """Delete the file; False where there is none."""
    try:
        profile_path().unlink()
    except FileNotFoundError:
        return False
    return True
