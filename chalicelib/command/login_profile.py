"""The file in which `outscaler login` keeps the names of a deployment."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import PublishedSettings
from chalicelib.net.bounded_files import content

_LARGEST = 1_000_000  # bytes; the settings may list 200 secrets and 200 hosts


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One deployment. policy_table: "" where its name follows from the other one. settings: what the deployment permits
    policies to name, None where it has not published that."""

    stack: str
    table: str
    policy_table: str = ""
    region: str = ""
    settings: PublishedSettings | None = None


def profile_path() -> Path:
    """Return the file's path: $OUTSCALER_PROFILE, otherwise a file in the user's directory for settings."""
    given = os.environ.get("OUTSCALER_PROFILE", "")
    if given:
        return Path(given)
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
