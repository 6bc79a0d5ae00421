"""`outscaler ui`: shows the status page of a deployment in the browser, read with the caller's own AWS credentials.

The page is served on the loopback address of this machine, until Ctrl-C or half an hour without a request. It changes
nothing: every page ends with the command that shows the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from chalicelib.command.deployment_settings import known_settings
from chalicelib.command.output import warn
from chalicelib.command.store_access import add_table_argument, open_store
from chalicelib.model.errors import BadInput

API = "OUTSCALER_API"
"""The variable with the address of the deployment's API."""
IDLE = 1800.0
"""Seconds without a request after which the command ends."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --port, --no-open, --hosted, --api, --cluster and --table."""
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="the port (default: a free one)")
    parser.add_argument(
        "--no-open", action="store_true", help="print the address and open no browser, as for an SSH tunnel"
    )
    parser.add_argument(
        "--hosted", action="store_true", help="open the page that the deployment serves, with a session of eight hours"
    )
    parser.add_argument(
        "--api",
        default=os.environ.get(API, ""),
        metavar="URL",
        help=f"with --hosted: the deployment's API (default: ${API}, else the output EndpointURL of the stack of "
        "outscaler login)",
    )
    parser.add_argument("--cluster", default="", metavar="NAME", help="with --hosted: the session shows this one only")
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Serve the page, or open the hosted one. Returns 0 after half an hour without a request; Ctrl-C ends it, too."""
    if args.hosted:
        from chalicelib.command.hosted_ui import link_of

        link = link_of(args.api, args.cluster)
        sys.stdout.write(f"{link}\nThe address works once, within a minute.\n")
        sys.stdout.flush()
        if not args.no_open:
            _open(link)
        return 0
    from chalicelib.command.ui_server import PageServer
    from chalicelib.page.pages import respond

    store = open_store(args)
    deployment = known_settings(store)
    store.policies.names()  # a wrong table, region or credential is an error now, and not a page later
    try:
        server = PageServer(
            args.port, lambda request, links: respond(store, request, time.time(), links, deployment), time.monotonic
        )
    except OSError as error:
        raise BadInput("--port", f"{args.port}: {error.strerror}", "choose another port, or leave it out") from None
    with server:
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.write("The address works once. Ctrl-C ends the page; it ends after 30 minutes without a request.\n")
        sys.stdout.flush()
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
