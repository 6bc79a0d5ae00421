"""Sends the orders of one lot: servers in stock, with a token that lets them join.

The first server of a scale-up is ordered alone, so an error that applies to every order (a refused token, no response)
is met only once. A refusal of only that server does not prevent the other orders.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.providers.cherryservers.cloud_init import needs_token, user_data
from chalicelib.providers.cherryservers.context import CherryContext
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.plans import stock_of
from chalicelib.providers.cherryservers.purchase_progress import Progress
from chalicelib.providers.cherryservers.server_requests import Order
from chalicelib.providers.cherryservers.token_source import Token
from chalicelib.providers.errors import Conflict, OutOfStock, ProviderError, Throttled, Transient, Unauthorized

_ENDS_IT = (Transient, Throttled, Conflict, Unauthorized)
_NOT_NOW = (Throttled, Conflict, Transient)

Result = CherryServer | ProviderError | None


class Script:
    """User data that contains a token. It is written only into an order."""

    def __init__(self, text: str, token: Token | None) -> None:
        self.text, self._token = text, token

    def hidden_in(self, message: str) -> str:
        """Return the message without the script and token, because an error may quote the request."""
        message = message.replace(self.text, "***") if self.text else message
        return message if self._token is None else self._token.secret.hidden_in(message)


class Bought(msgspec.Struct, frozen=True):
    """pause: seconds before the next order. held: why the lot was not sent completely, None if it was."""

    progress: Progress
    pause: float = 0.0
    held: ProviderError | None = None


def on_stock(context: CherryContext, order: Order, progress: Progress) -> Progress:
    """Refuse the servers that are not in stock now. Raises ProviderError if the plan cannot be read."""
    wanted, of = progress.open(order.count), order.definition
    try:
        plan = context.api.plan(of.plan, fresh=True)
        if plan is None:
            raise OutOfStock(f"the vendor has no plan {of.plan!r}", code="Plan")
        there = stock_of(plan, of.region, spot=of.spot)
    except OutOfStock as error:
        return progress.refuse(wanted, error)
    if there >= len(wanted):
        return progress
    kind = " on the spot market" if of.spot else ""
    short = OutOfStock(
        f"{there} of plan {of.plan} are in stock in {of.region}{kind}, {len(wanted)} are wanted", code="Stock"
    )
    return progress.refuse(wanted[there:], short)


def script_for(context: CherryContext, order: Order) -> Script:
    """Return the user data of servers that are ordered now. Raises ProviderError.

    The token is read only if the script uses it."""
    token = context.tokens.current() if needs_token(order.definition) else None
    return Script(user_data(order.definition, token), token)


def send(context: CherryContext, order: Order, progress: Progress, lot: Sequence[int], script: Script) -> Bought:
    """Order these servers; raises nothing."""
    bodies = order.bodies(lot, script.text)
    first = not (progress.made or progress.refused) and len(bodies) > 1
    results: list[Result] = list(context.api.create(bodies[:1] if first else bodies))
    if first and results and not isinstance(results[0], _ENDS_IT) and results[0] is not None:
        results += context.api.create(bodies[1:])
    results = [_clean(each, script) for each in results]
    results += [None] * (len(lot) - len(results))
    return _sorted(order, progress, dict(zip(lot, results, strict=True)))


def _sorted(order: Order, progress: Progress, results: dict[int, Result]) -> Bought:
    progress = progress.seen({number: each.id for number, each in results.items() if isinstance(each, CherryServer)})
    unsure = [number for number, each in results.items() if isinstance(each, Transient)]
    progress = msgspec.structs.replace(progress, unsure=tuple(sorted({*progress.unsure, *unsure})))
    errors = {number: each for number, each in results.items() if isinstance(each, ProviderError)}
    for number, error in errors.items():
        if isinstance(error, Unauthorized):
            progress = progress.refuse((number, *progress.open(order.count)), error)
        elif not isinstance(error, _NOT_NOW):
            progress = progress.refuse((number,), error)
    held = [error for error in errors.values() if isinstance(error, _NOT_NOW)]
    return Bought(progress, max([0.0, *(each.retry_after for each in held)]), held[0] if held else None)


def _clean(result: Result, script: Script) -> Result:
    if not isinstance(result, ProviderError):
        return result
    return type(result)(
        script.hidden_in(result.message), code=result.code, request_id=result.request_id, retry_after=result.retry_after
    )
