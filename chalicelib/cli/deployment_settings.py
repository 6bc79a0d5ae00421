"""The settings by which commands judge a policy: those of the deployed functions,
not those of this shell.

    with the tables       1  the row that make deploy or the emulation has written
                          2  the output of the CloudFormation stack that the tables belong to
    without, or if        3  what outscaler login has kept of the same table
    nothing is published  4  what follows from the name of the table and the environment

The first source that has settings counts. With the tables, sources 3 and 4 are reported in
one line: the functions may have other settings.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cli.output import warn
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.policy_permissions import (
    Deployment,
    PublishedSettings,
    deployment_of,
    deployment_published,
)
from chalicelib.model.resource_names import PREFIX, stage_prefix, state_table
from chalicelib.net.bounded_files import content

if TYPE_CHECKING:
    from chalicelib.store import Store

_PUBLISH = "make deploy, or another deployment of the stack, publishes it"
_LARGEST = 1_000_000  # bytes of a profile; the settings may list 200 secrets and 200 hosts


class JudgedBy(msgspec.Struct, frozen=True):
    """The settings that a policy is judged by. notice: one line where the deployment has not
    published them; empty where it has, and where no deployment is known."""

    deployment: Deployment
    notice: str = ""


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One deployment, as `outscaler login` keeps it. policy_table: "" where its name follows from
    the other one. settings: what the deployment permits policies to name, None where it has not
    published that. api: the address of its API, "" where it has none."""

    stack: str
    table: str
    policy_table: str = ""
    region: str = ""
    settings: PublishedSettings | None = None
    api: str = ""


class KeptLogins(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The file of `outscaler login`. current: the name (Login.stack) of the deployment that
    commands use, "" for none. Of two names of one table in one region the later one counts."""

    deployments: tuple[Login, ...]
    current: str = ""

    def named(self, name: str) -> Login:
        """Return the deployment of that name. Raises BadInput with the nearest name."""
        by_name = {login.stack: login for login in self.deployments}
        if name in by_name:
            return by_name[name]
        close = get_close_matches(name, by_name, n=1)
        known = f"known: {', '.join(by_name)}; " if by_name else ""
        remedy = (
            f"did you mean {close[0]}?"
            if close
            else f"{known}outscaler login STACK keeps another one"
        )
        raise BadInput("outscaler login", f"no deployment is kept as {name[:60]!r}", remedy)


def settings_here() -> JudgedBy:
    """Return the settings without a call to AWS: of the deployment of `outscaler login` that
    applies here, otherwise what the environment says. A command may read files of its workstation.
    Raises BadInput that names the invalid variable."""
    login = login_here()
    if login is not None:
        return _of_login(login)
    guess = _of_names(state_table(os.environ), "outscaler login reads it")
    # a stage's own prefix is no guess
    return JudgedBy(guess.deployment) if guess.deployment.prefix_known else guess


def settings_of(store: Store) -> JudgedBy:
    """Return the current settings of the deployment that a store belongs to. Warns if it has
    published none. Raises StoreError, BadInput."""
    published = published_by(store)
    if published is not None:
        return JudgedBy(published)
    table = store.table.name
    login = login_of(table)
    guess = _of_login(login) if login is not None else _of_names(table, _PUBLISH)
    kept = (
        f"table {table} does not say what policies may name; judged by what outscaler login has "
        f"kept; {_PUBLISH}"
    )
    warn(guess.notice or kept)
    return guess if guess.notice else JudgedBy(guess.deployment, kept)


def known_settings(store: Store) -> Deployment | None:
    """Return what the deployment of a store has published, for commands that only show how policies
    are; None where it is not known. Warns about settings that cannot be read."""
    try:
        return published_by(store)
    except OutscalerError as error:
        warn(str(error))
        return None


def on_this_machine(deployment: Deployment) -> Deployment:
    """Return the settings for a command that calls vendors itself: it may call
    servers on this machine."""
    return msgspec.structs.replace(deployment, loopback=True)


def published_by(store: Store) -> Deployment | None:
    """Return what the deployment of a store has published: in its policy table, or in
    the outputs of the stack that made the tables. None where it has published nothing.
    Raises StoreError, BadInput."""
    published = store.deployment_settings().read()
    # a stage of make deploy has only the row
    if published is None and not stage_prefix(store.table.name):
        from chalicelib.cli.deployments import settings_of_table

        settings = settings_of_table(store.table.name)
        published = deployment_published(settings) if settings is not None else None
    return msgspec.structs.replace(published, files=True) if published is not None else None


def _of_login(login: Login) -> JudgedBy:
    if login.settings is None:
        return _of_names(login.table, f"{_PUBLISH}, and outscaler login reads it")
    return JudgedBy(msgspec.structs.replace(deployment_published(login.settings), files=True))


def _of_names(table: str, remedy: str) -> JudgedBy:
    """Return the settings that a table's name and the environment imply.
    table: "" where none is known."""
    prefix = stage_prefix(table)
    guess = deployment_of({**os.environ, **({PREFIX: prefix} if prefix else {})}, files=True)
    notice = (
        f"what the deployment of table {table} permits policies to name is not known; judged by "
        "its name and this "
        f"environment: secrets under {guess.secret_prefix}; {remedy}"
    )
    return JudgedBy(guess, notice if table else "")


# -- the deployments that `outscaler login` has kept


_STAGE: ContextVar[str] = ContextVar("stage", default="")


@contextlib.contextmanager
def stage_chosen(name: str) -> Iterator[None]:
    """Let the block use the kept deployment of that name, whatever the environment
    says. name: "" for no choice."""
    token = _STAGE.set(name)
    try:
        yield
    finally:
        _STAGE.reset(token)


def chosen_stage() -> str:
    """Return the name that --stage gives, "" for none."""
    return _STAGE.get()


def login_here() -> Login | None:
    """Return the kept deployment that commands use: that of --stage, otherwise the one whose
    table the environment names, otherwise the current one. None where there is none. Raises
    BadInput for an unknown --stage."""
    logins = load_logins()
    if name := chosen_stage():
        return logins.named(name)
    if table := state_table(os.environ):
        return login_of(table)
    return logins.named(logins.current) if logins.current else None


def login_of(table: str) -> Login | None:
    """Return the kept deployment of a state table; the current one where several
    regions have such a table."""
    logins = load_logins()
    matching = [login for login in logins.deployments if login.table == table]
    return next(
        (login for login in matching if login.stack == logins.current), next(iter(matching), None)
    )


def profile_path() -> Path:
    """Return the file's path: $OUTSCALER_PROFILE, otherwise a file in the
    user's directory for settings."""
    profile = os.environ.get("OUTSCALER_PROFILE", "")
    if profile:
        return Path(profile)
    settings = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(settings) if settings else Path.home() / ".config") / "outscaler" / "profile.json"


def load_logins() -> KeptLogins:
    """Return the kept deployments; none where there is no file. A file of an older release has one
    deployment. Raises BadInput for a file that outscaler login has not written."""
    path = profile_path()
    if not path.is_file():
        return KeptLogins(())
    try:
        data = msgspec.json.decode(content(path, _LARGEST))
        if isinstance(data, dict) and "deployments" not in data:
            login = msgspec.convert(data, Login)
            return KeptLogins((login,), login.stack)
        logins = msgspec.convert(data, KeptLogins)
        if logins.current:
            logins.named(logins.current)
    except (msgspec.MsgspecError, ValueError, BadInput) as error:
        raise BadInput(
            str(path), f"cannot be read ({error})", "delete it, then outscaler login STACK"
        ) from None
    return logins


def save_login(login: Login) -> None:
    """Keep a deployment and make it the current one. Raises OSError, and BadInput for
    a file that is not ours."""
    before = load_logins().deployments
    place = (login.table, login.region)
    others = (
        item for item in before if item.stack != login.stack and (item.table, item.region) != place
    )
    _save(KeptLogins((*others, login), login.stack))


def use_login(name: str) -> Login:
    """Make a kept deployment the current one. Raises BadInput for an unknown name, OSError."""
    logins = load_logins()
    login = logins.named(name)
    _save(KeptLogins(logins.deployments, login.stack))
    return login


def remove_login(name: str = "") -> bool:
    """Forget a deployment, "" for the current one; False where none was current. No other one takes
    its place, because a command must not change another deployment by mistake. Raises BadInput for
    an unknown name, OSError."""
    logins = load_logins()
    name = name or logins.current
    if not name:
        return False
    login = logins.named(name)
    others = tuple(other for other in logins.deployments if other is not login)
    _save(KeptLogins(others, "" if name == logins.current else logins.current))
    return True


def _save(logins: KeptLogins) -> None:
    """Write the file; a reader sees the old one or the new one. Raises OSError."""
    path = profile_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(logins), indent=2) + b"\n")
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
