"""`outscaler ui`: shows the status page of a deployment in the browser, read with the
caller's own AWS credentials.

The page is served on the loopback address of this machine, until Ctrl-C or half an hour without a
request. It changes nothing: every page ends with the command that shows the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from urllib.parse import quote, urlsplit

from chalicelib.cli.deployment_settings import chosen_stage, known_settings, login_here
from chalicelib.cli.deployments import endpoint_of, post
from chalicelib.cli.output import warn
from chalicelib.cli.store_access import add_table_argument, open_store
from chalicelib.model.errors import BadInput

API = "OUTSCALER_API"
"""The variable with the address of the deployment's API."""
IDLE = 1800.0
"""Seconds without a request after which the command ends."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --port, --no-open, --hosted, --api, --cluster and --table."""
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="the port (default: a free one)"
    )
    parser.add_argument(
        "--no-open",
        action="store_true",
        help="print the address and open no browser, as for an SSH tunnel",
    )
    parser.add_argument(
        "--hosted",
        action="store_true",
        help="open the page that the deployment serves, with a session of eight hours",
    )
    parser.add_argument(
        "--api",
        default="",
        metavar="URL",
        help=f"with --hosted: the deployment's API (default: ${API}, else that of outscaler login)",
    )
    parser.add_argument(
        "--cluster",
        default="",
        metavar="NAME",
        help="with --hosted: the session shows this one only",
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Serve the page, or open the hosted one. Returns 0 after half an hour without a
    request; Ctrl-C ends it, too."""
    if args.hosted:
        from chalicelib.cli.commands.ui import link_of

        link = link_of(args.api, args.cluster)
        sys.stdout.write(f"{link}\n")
        sys.stdout.flush()
        sys.stderr.write("The address works once, within a minute.\n")
        if not args.no_open:
            _open(link)
        return 0
    from chalicelib.cli.ui_server import PageServer
    from chalicelib.page.routes import respond

    store = open_store(args)
    deployment = known_settings(store)
    # a wrong table, region or credential is an error now, and not a page later
    store.policies.names()
    try:
        server = PageServer(
            args.port,
            lambda request, links: respond(store, request, time.time(), links, deployment),
            time.monotonic,
        )
    except OSError as error:
        raise BadInput(
            "--port", f"{args.port}: {error.strerror}", "choose another port, or leave it out"
        ) from None
    with server:
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        sys.stderr.write(
            "The address works once. Ctrl-C ends the page; it ends after 30 minutes without a "
            "request.\n"
        )
        if not args.no_open:
            _open(server.address)
        server.serve_until_idle(IDLE)
    return 0


def _open(address: str) -> None:
    import webbrowser

    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        warn("no browser could be opened; open the address yourself")


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 <= int(text[:6]) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a port from 0 to 65535")


def link_of(api: str, cluster: str) -> str:
    """Return the address that opens the page. api: the address of the API, "" for that of the
    environment or of the kept deployment. cluster: "" for all. Raises BadInput, ApiFailure."""
    login, api = login_here(), api or ("" if chosen_stage() else os.environ.get(API, ""))
    of_login = (
        (login.api or endpoint_of(login.stack, login.region))
        if login is not None and not api
        else ""
    )
    base = (api or of_login).rstrip("/")
    if not base:
        raise BadInput(
            "--api",
            "is not given, and no login is kept to a stack that names it",
            "give the URL that the deployment prints",
        )
    if _scheme(base) != "https":
        raise BadInput(
            "--api", f"{base[:100]!r} is not an HTTPS address", "give the URL of the API"
        )
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
