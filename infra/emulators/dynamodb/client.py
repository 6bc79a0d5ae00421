"""A botocore client for DynamoDB in memory: requests are function calls, errors are botocore's.

moto answers through a whole web framework, at ten milliseconds a request. A world that is to take a hundred thousand
steps needs the semantics without the wire. What a request means is what DynamoDB says it means; what this package does
not know is refused, never passed over.

    client.py        this: a botocore client's face
    tables.py        the operations on one account's tables
    transactions.py  several writes, all or none
    writes.py        what one write comes to
    partitions.py    rows by key, in order, a megabyte at a time
    updates.py       update expressions
    conditions.py    condition expressions, key conditions
    expressions.py   what both are made of: words, paths, operands
    values.py        what may be stored, what is equal, what is less, how large it is

`checked=True` also lets botocore's own model of the service judge every request, and tells listeners what botocore
would tell them. It costs more than the request itself, so it is for this package's tests and the store's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError, ParamValidationError
from botocore.hooks import HierarchicalEmitter
from botocore.model import OperationModel, ServiceModel
from botocore.session import get_session
from botocore.validate import ParamValidator

from infra.emulators.dynamodb.errors import Refusal
from infra.emulators.dynamodb.tables import KNOWN, Json, Tables

_SERVICE = "dynamodb"
_ASKED, _GIVEN, _ANSWERED = "provide-client-params", "before-parameter-build", "after-call"


@functools.cache
def _model() -> ServiceModel:
    """botocore's description of DynamoDB, read on first use: it is large."""
    return get_session().get_service_model(_SERVICE)


class Listeners:
    """Client.meta.events, of which the two events before a call and the one after it are told."""

    def __init__(self) -> None:
        self._emitter, self.any = HierarchicalEmitter(), False

    def register(self, event: str, handler: Callable[..., Any]) -> None:
        """From now on; `*` and prefixes as botocore has them."""
        self._emitter.register(event, handler)
        self.any = True

    def unregister(self, event: str, handler: Callable[..., Any]) -> None:
        """No more."""
        self._emitter.unregister(event, handler)

    def tell(self, event: str, operation: OperationModel, **facts: Any) -> None:
        """All who listen to it."""
        self._emitter.emit(f"{event}.{_SERVICE}.{operation.name}", model=operation, **facts)


class Meta:
    """Client.meta."""

    def __init__(self) -> None:
        self.events = Listeners()


class MemoryClient:
    """tables: the account. checked: see the module. Every method of KNOWN by its Python name; raises ClientError."""

    def __init__(self, tables: Tables, *, checked: bool = False) -> None:
        self.tables, self.meta, self._checked = tables, Meta(), checked
        for operation in KNOWN:
            setattr(self, xform_name(operation), functools.partial(self._call, operation))

    def __getattr__(self, name: str) -> Callable[..., Json]:
        raise AttributeError(f"{name} is not emulated (infra/emulators/dynamodb)")

    def get_waiter(self, name: str) -> MemoryClient:
        """Whatever is waited for has happened already."""
        del name
        return self

    def wait(self, **_: object) -> None:
        """See get_waiter."""

    def _call(self, operation: str, /, **request: Any) -> Json:
        told = self.meta.events.any
        if told or self._checked:
            model = _model().operation_model(operation)
            self.meta.events.tell(_ASKED, model, params=request)
            self.meta.events.tell(_GIVEN, model, params=request)
            if self._checked:
                _check(model, request)
        try:
            answer = self.tables.operate(operation, request)
        except Refusal as refusal:
            raise _as_botocore(operation, refusal) from None
        if told:
            self.meta.events.tell(_ANSWERED, model, parsed=answer)
        return answer


def _check(operation: OperationModel, request: Json) -> None:
    """As botocore does before it sends; ParamValidationError."""
    shape = operation.input_shape
    assert shape is not None
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        raise ParamValidationError(report=report.generate_report())


def _as_botocore(operation: str, refusal: Refusal) -> ClientError:
    status = 500 if refusal.code == "InternalServerError" else 400
    answer: Any = {
        "Error": {"Code": refusal.code, "Message": refusal.message},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **refusal.more,
    }
    if "CancellationReasons" not in refusal.more:
        answer["message"] = refusal.message
    return ClientError(answer, operation)
