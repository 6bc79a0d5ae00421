"""What a queue function gives back for a batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.handlers.entry import each_record
from chalicelib.handlers.runtime import Runtime, build, install, runtime
from chalicelib.model.errors import BadInput
from infra.local.controllers.clock import ManualClock


class Nothing:
    """Stands where a part is that the test does not come to."""


@pytest.fixture
def rt() -> Iterator[Runtime]:
    parts: dict[str, object] = {"store": Nothing(), "sender": Nothing(), "read_secret": str}
    made = build(clock=ManualClock(0.0), **parts)  # type: ignore[arg-type] # nothing here looks at them
    install(made)
    yield made
    install(None)


def _event(*bodies: str) -> dict[str, object]:
    return {"Records": [{"messageId": f"m-{number}", "body": body} for number, body in enumerate(bodies)]}


def test_only_what_failed_goes_back(rt: Runtime) -> None:
    done: list[tuple[str, Runtime]] = []

    def work(body: str, here: Runtime) -> None:
        if body == "bad":
            raise BadInput("message", "is bad")
        if body == "worse":
            raise ZeroDivisionError
        done.append((body, here))

    answer = each_record(_event("a", "bad", "b", "worse"), work)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m-1"}, {"itemIdentifier": "m-3"}]}
    assert done == [("a", rt), ("b", rt)]


def test_an_empty_batch_is_done(rt: Runtime) -> None:
    assert each_record({}, lambda body, here: None) == {"batchItemFailures": []}


def test_the_runtime_names_what_is_missing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    install(None)
    monkeypatch.delenv("OUTSCALER_TABLE", raising=False)
    with pytest.raises(BadInput, match="OUTSCALER_TABLE is not set"):
        runtime()
