"""Defines the Chalice app: the Lambda functions and the HTTP routes. Every body is one call
into chalicelib.functions.

Only the routes run through this file. Lambda enters the functions of the blueprints directly and
never imports it, so this file must not set up anything that they need (no middleware, no logging).

OUTSCALER_READ_AUTH in .chalice/config.json decides at packaging time who may call the
read routes: `iam` (signed requests) or `api-key` (header x-api-key). There is no third value, and
in particular no open access.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from chalice.app import Chalice, IAMAuthorizer, Request, Response

# `chalice deploy` names a package by a hash of chalicelib, bytecode included, so importing
# the package must not write bytecode. Typed in the repository, it runs the whole
# deployment, as `make deploy` does.
if os.environ.get("AWS_CHALICE_CLI_MODE"):
    sys.dont_write_bytecode = True
    if (Path(__file__).parent / "infra" / "aws").is_dir():
        try:
            from click import get_current_context

            from infra.aws.deploy.chalice_command import run_in_place
        except ModuleNotFoundError as error:
            sys.exit(
                f"{error.name} is not installed; make deploy STAGE=dev installs what a deployment "
                "needs"
            )
        run_in_place(get_current_context(silent=True))

from chalicelib.functions import act, hosted_page, prometheus, read_api, reconcile, tick, webhook
from chalicelib.functions.http_response import HttpResponse, respond
from chalicelib.functions.lambda_entry import preload
from chalicelib.functions.prometheus import CONTENT_TYPE, PAGE
from chalicelib.model.errors import BadInput
from chalicelib.runtime.runtime import runtime

if TYPE_CHECKING:
    from chalicelib.page.routes import PageAnswer

preload(__name__, "chalicelib.policy.compiled")

# Chalice's default set-up would raise the level of this logger, which Outscaler owns, to ERROR.
app = Chalice(app_name="outscaler", configure_logs=False)
for _module in (tick, reconcile, act):
    app.register_blueprint(_module.blueprint)

_READERS: dict[str, dict[str, Any]] = {
    "iam": {"authorizer": IAMAuthorizer()},
    "api-key": {"api_key_required": True},
}
_READ = _READERS[os.environ.get("OUTSCALER_READ_AUTH", "iam")]


def _request() -> Request:
    """Return the current request. Chalice types it as optional, but inside
    a route it is always set."""
    return cast(Request, app.current_request)


def _asked() -> str:
    """Return the method and path of the request, for the log."""
    request = _request()
    return (
        f"{request.method} "
        f"{request.path.replace('{name}', (request.uri_params or {}).get('name', ''))}"
    )


def _respond(work: Callable[[], HttpResponse]) -> Response:
    answer = respond(work, getattr(app.lambda_context, "aws_request_id", ""), _asked())
    return Response(
        body=answer.body, status_code=answer.status, headers={"Content-Type": "application/json"}
    )


def _respond_with_page(work: Callable[[], HttpResponse]) -> Response:
    """Return the only response that is not JSON; errors are JSON as on every route."""
    answer = respond(work, getattr(app.lambda_context, "aws_request_id", ""), _asked())
    if answer.status != 200:
        return Response(
            body=answer.body,
            status_code=answer.status,
            headers={"Content-Type": "application/json"},
        )
    return Response(body=answer.body[PAGE], status_code=200, headers={"Content-Type": CONTENT_TYPE})


def _shown(path: str) -> Response:
    request = _request()
    cookies, query = request.headers.get("cookie", ""), dict(request.query_params or {})
    return _page(lambda base: hosted_page.show(path, query, cookies, base, runtime()))


def _page(work: Callable[[str], PageAnswer]) -> Response:
    """Return a page; a failure is JSON as on every route."""
    made: list[PageAnswer] = []

    def done() -> HttpResponse:
        context = _request().context
        made.append(
            work(
                hosted_page.base_of(
                    str(context.get("path", "")), str(context.get("resourcePath", ""))
                )
            )
        )
        return HttpResponse(200, {})

    answer = respond(
        done, getattr(app.lambda_context, "aws_request_id", ""), f"GET {hosted_page.ROOT}"
    )
    if not made:
        return Response(
            body=answer.body,
            status_code=answer.status,
            headers={"Content-Type": "application/json"},
        )
    return Response(
        body=made[0].body.decode(), status_code=made[0].status, headers={**made[0].headers}
    )


def _body() -> bytes:
    try:
        raw = _request().raw_body
        return raw if isinstance(raw, bytes) else raw.encode()
    except ValueError:
        raise BadInput("body", "is neither UTF-8 text nor base64", "post JSON as UTF-8") from None


@app.route("/healthz", methods=["GET"])
def healthz() -> Response:
    """Report that the function responds; disclose nothing more."""
    return _respond(read_api.healthz)


@app.route("/metrics", methods=["GET"], **_READ)
def metrics() -> Response:
    """Return the metrics of all clusters for Prometheus."""
    return _respond_with_page(lambda: prometheus.metrics(runtime()))


@app.route("/clusters", methods=["GET"], **_READ)
def clusters() -> Response:
    """List all clusters with a summary of each."""
    return _respond(lambda: read_api.clusters(runtime()))


@app.route("/clusters/{name}", methods=["GET"], **_READ)
def cluster(name: str) -> Response:
    """Return one cluster: its policy, node groups, operations and timers."""
    return _respond(lambda: read_api.cluster(name, runtime()))


@app.route("/clusters/{name}/decisions", methods=["GET"], **_READ)
def decisions(name: str) -> Response:
    """Return the cluster's decisions, newest first."""
    parameters = _request().query_params
    return _respond(lambda: read_api.decisions(name, dict(parameters or {}), runtime()))


@app.route(
    "/clusters/{name}/session", methods=["POST"], authorizer=IAMAuthorizer(), content_types=["*/*"]
)
def cluster_session(name: str) -> Response:
    """Return a link that opens the hosted page for one cluster."""
    return _respond(lambda: hosted_page.session(name, runtime()))


@app.route("/ui/session", methods=["POST"], authorizer=IAMAuthorizer(), content_types=["*/*"])
def session() -> Response:
    """Return a link that opens the hosted page for all clusters."""
    return _respond(lambda: hosted_page.session("", runtime()))


@app.route("/ui/open/{code}", methods=["GET"])
def opened(code: str) -> Response:
    """Exchange a link for a session."""
    headers, query = _request().headers, dict(_request().query_params or {})
    asked = hosted_page.LinkRequest(
        headers.get("cookie", ""), headers.get("sec-fetch-site", ""), str(query.get("replace", ""))
    )
    return _page(lambda base: hosted_page.open_link(code, asked, base, runtime()))


@app.route("/ui", methods=["GET"])
def page_of_clusters() -> Response:
    """Show the page of all clusters."""
    return _shown("/")


@app.route("/ui/static/{file}", methods=["GET"])
def page_asset(file: str) -> Response:
    """Return a script or the style sheet of the pages."""
    return _page(lambda base: hosted_page.asset(file, base, runtime()))


@app.route("/ui/clusters/{name}", methods=["GET"])
def page_of_cluster(name: str) -> Response:
    """Show the page of one cluster."""
    return _shown(f"/clusters/{quote(name, safe='')}")


@app.route("/ui/clusters/{name}/{page}", methods=["GET"])
def page_of_part(name: str, page: str) -> Response:
    """Show one of a cluster's other pages."""
    return _shown(f"/clusters/{quote(name, safe='')}/{quote(page, safe='')}")


@app.route("/clusters/{name}/events", methods=["POST"], content_types=["*/*"])
def events(name: str) -> Response:
    """Receive Kubernetes events; the webhook authenticates its callers itself."""
    return _respond(lambda: webhook.handle(name, _request().headers, _body(), runtime()))
