"""Asks the deployment for a link that opens its hosted page, with a request that is signed for IAM."""

from __future__ import annotations

import json
from urllib.parse import quote, urlsplit

from chalicelib.command.deployments import endpoint_of
from chalicelib.command.login_profile import load_login
from chalicelib.command.signed_request import post
from chalicelib.model.errors import BadInput


def link_of(api: str, cluster: str) -> str:
    """Return the address that opens the page. api: the address of the API, "" for that of the kept deployment. cluster:
    "" for all. Raises BadInput, ApiFailure."""
    login = load_login()
    base = (api or (endpoint_of(login.stack, login.region) if login is not None else "")).rstrip("/")
    if not base:
        raise BadInput(
            "--api",
            "is not given, and no login is kept to a stack that names it",
            "give the URL that the deployment prints",
        )
    if _scheme(base) != "https":
        raise BadInput("--api", f"{base[:100]!r} is not an HTTPS address", "give the URL of the API")
    path = f"/clusters/{quote(cluster, safe='')}/session" if cluster else "/ui/session"
    answer = post(f"{base}{path}")
    try:
        link = str(json.loads(answer)["link"])
    except (ValueError, KeyError, TypeError):
        link = ""
    if not link.startswith("/ui/open/"):
        raise BadInput(base, "does not answer as Outscaler does", "check the address of the API")
    return f"{base}{link}"


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:  # a bracket that is not closed
        return ""
