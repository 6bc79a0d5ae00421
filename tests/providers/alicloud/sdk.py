"""Loads the vendor's SDK only when a test requests it: importing its packages takes seconds, and
the program never uses them."""

from __future__ import annotations

import time
from importlib import import_module
from types import SimpleNamespace
from typing import Any


def load(product: str) -> Any:
    """Returns models, Client, Config, errors, utils and runtime of
    `ess20220222` or `ecs20140526`."""
    package = f"alibabacloud_{product}"
    return SimpleNamespace(
        models=import_module(f"{package}.models"),
        Client=import_module(f"{package}.client").Client,
        Config=import_module("alibabacloud_tea_openapi.models").Config,
        errors=import_module("alibabacloud_tea_openapi.exceptions"),
        utils=import_module("alibabacloud_tea_openapi.utils_models"),
        runtime=import_module("darabonba.runtime"),
    )


def wall() -> float:
    """Sets the wall clock that the SDK signs with, because the SDK accepts no time argument."""
    return time.time()
