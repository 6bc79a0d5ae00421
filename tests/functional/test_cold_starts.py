"""How much CPU each function takes from its process to its first event, and what it loads until then."""

from __future__ import annotations

import pytest

from chalicelib.dispatch.messages import PROVIDERS
from tests.functional import cold_start
from tests.functional.artifact import artifact
from tests.functional.forbidden_modules import unwanted
from tests.functional.stack import HANDLERS

FEWEST, MOST = 3, 15  # rounds
AWAITED = ("app", "chalicelib.handlers.tick")  # they begin by reading policies before they are asked


@pytest.mark.parametrize("function", HANDLERS)
def test_a_cold_start_takes_few_times_the_import_of_botocore(function: str) -> None:
    """The least of each counts: whatever else runs on the machine only adds to a process's CPU time. More rounds are
    made while the limit is not kept, because on a busy machine the least comes late."""
    handler, task = HANDLERS[function], artifact().task
    sessions: list[float] = []
    starts: list[float] = []
    while len(starts) < MOST:
        sessions.append(cold_start.session(task).cpu)
        starts.append(cold_start.start(task, handler).cpu)
        if len(starts) >= FEWEST and min(starts) <= cold_start.limit(handler) * min(sessions):
            break
    ratio = min(starts) / min(sessions)
    assert ratio <= cold_start.limit(handler), f"{function} takes {ratio:.2f} times the CPU of botocore's session"


@pytest.mark.parametrize("function", HANDLERS)
def test_a_cold_start_loads_nothing_that_the_function_has_no_use_for(function: str) -> None:
    handler = HANDLERS[function]
    loaded = cold_start.modules(artifact().task, handler)
    module = handler.rpartition(".")[0]
    assert {module, "chalicelib.handlers.lambda_entry"} <= set(loaded)
    assert "chalicelib.policy.load" not in loaded
    assert module not in AWAITED or "chalicelib.policy.compiled" in loaded
    assert unwanted(handler, loaded) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_executor_has_loaded_its_own_provider_and_no_other(provider: str) -> None:
    loaded = cold_start.modules(artifact().task, f"chalicelib.handlers.act.act_{provider}")
    assert [name for name in PROVIDERS if f"chalicelib.providers.{name}.provider" in loaded] == [provider]


@pytest.mark.parametrize("function", HANDLERS)
def test_after_a_start_garbage_is_collected_but_not_sought_among_modules(function: str) -> None:
    asked = "gc.isenabled(), gc.get_freeze_count() > 20_000, os.environ['OPENBLAS_NUM_THREADS']"
    assert cold_start.asked(artifact().task, HANDLERS[function], asked) == "True True 1"


def test_the_list_finds_what_is_loaded_too_early() -> None:
    loaded = (
        "numpy.linalg",
        "chalicelib.providers.exoscale.api",
        "chalicelib.providers.alicloud",
        "boto3.session",
        "numpydoc",
        "chalicelib.model.timeouts",
    )
    assert unwanted("chalicelib.handlers.act.act_exoscale", loaded) == [
        "boto3.session",
        "chalicelib.providers.alicloud",
        "numpy.linalg",
    ]
    assert "chalicelib.model.timeouts" in unwanted("app.app", loaded)
