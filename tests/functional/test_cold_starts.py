"""The modules that each function loads from process start to its first event."""

from __future__ import annotations

import pytest

from chalicelib.runtime.messages import PROVIDERS
from tests.functional import cold_start
from tests.functional.artifact import artifact
from tests.functional.forbidden_modules import unwanted
from tests.functional.stack import HANDLERS

AWAITED = ("app", "chalicelib.functions.tick")  # they read policies before their first event


@pytest.mark.parametrize("function", HANDLERS)
def test_cold_start_loads_no_module_that_the_function_does_not_use(function: str) -> None:
    handler = HANDLERS[function]
    loaded = cold_start.started(artifact().task, handler).modules
    module = handler.rpartition(".")[0]
    assert {module, "chalicelib.functions.lambda_entry"} <= set(loaded)
    assert "chalicelib.policy.load" not in loaded
    assert module not in AWAITED or "chalicelib.policy.compiled" in loaded
    assert unwanted(handler, loaded) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_act_function_loads_only_its_own_provider(provider: str) -> None:
    loaded = cold_start.started(artifact().task, f"chalicelib.functions.act.act_{provider}").modules
    assert [name for name in PROVIDERS if f"chalicelib.providers.{name}.provider" in loaded] == [
        provider
    ]


@pytest.mark.parametrize("function", HANDLERS)
def test_garbage_collection_after_a_start_skips_loaded_modules(function: str) -> None:
    started = cold_start.started(artifact().task, HANDLERS[function])
    assert (started.collects, started.frozen > 20_000, started.threads) == (True, True, "1")


def test_list_of_forbidden_modules_detects_an_early_import() -> None:
    loaded = (
        "numpy.linalg",
        "chalicelib.providers.exoscale.api",
        "chalicelib.providers.alicloud",
        "boto3.session",
        "numpydoc",
        "chalicelib.plan.state.backoff",
    )
    assert unwanted("chalicelib.functions.act.act_exoscale", loaded) == [
        "boto3.session",
        "chalicelib.providers.alicloud",
        "numpy.linalg",
    ]
    assert "chalicelib.plan.state.backoff" in unwanted("app.app", loaded)
