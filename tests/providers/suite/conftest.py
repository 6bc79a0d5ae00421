"""The benches of the suite, a new one for each test, and a check of all output of
their providers for secrets.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.provider_fixture import ProviderFixture
from tests.providers.suite.recording_provider import Ear

#: Name -> module in tests/providers, its class, and how it is made.
BENCHES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = MappingProxyType(
    {
        "memory": ("suite.memory", "MemoryBench", {}),
        "clusterapi": ("clusterapi.fixture", "ClusterApiBench", {}),
        "alicloud": ("alicloud.fixture", "AlicloudBench", {}),
        "cherryservers": ("cherryservers.fixture", "CherryBench", {}),
        "exoscale": ("exoscale.fixture", "ExoscaleFixture", {}),
        "huaweicloud": ("huaweicloud.fixture", "HuaweiBench", {}),
    }
)
#: : The same vendors in another configuration, only for the modules in VARIED, because
#: vendors make the tests slow.
VARIANTS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = MappingProxyType(
    {
        "clusterapi-apart": ("clusterapi.fixture", "ClusterApiBench", {"apart": True}),
        "alicloud-undesired": (
            "alicloud.fixture",
            "AlicloudBench",
            {"desired": False, "prefix": "alicloud://"},
        ),
        "cherryservers-late": (
            "cherryservers.fixture",
            "CherryBench",
            {"prefix": "", "cap": 3, "delete_lag": 20.0},
        ),
        "exoscale-standalone": ("exoscale.fixture", "ExoscaleFixture", {"standalone": True}),
        "huaweicloud-grouped": ("huaweicloud.fixture", "HuaweiBench", {"grouped": True}),
    }
)
VARIED = (
    "test_suite_observe",
    "test_suite_scale_up",
    "test_suite_sizes",
    "test_suite_remove",
    "test_suite_random",
    "test_suite_identity",
    "test_suite_node_life",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs every test that requests a yard once with each bench."""
    if "yard" in metafunc.fixturenames:
        varied = metafunc.module.__name__.rpartition(".")[2] in VARIED
        metafunc.parametrize("yard", [*BENCHES, *(VARIANTS if varied else ())], indirect=True)


@pytest.fixture
def yard(request: pytest.FixtureRequest) -> Iterator[OperationDriver]:
    """A bench without groups. At the end, no output may contain a secret."""
    module, made, how = {**BENCHES, **VARIANTS}[request.param]
    bench: ProviderFixture = getattr(importlib.import_module(f"tests.providers.{module}"), made)(
        **how
    )
    ear, root = Ear(), logging.getLogger()
    level = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        with bench:
            yield OperationDriver(bench, ear)
            assert not ear.leaked(bench.secrets())
    finally:
        root.removeHandler(ear)
        root.setLevel(level)
