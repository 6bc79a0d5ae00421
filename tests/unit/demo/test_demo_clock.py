"""The page of `make run ARGS=--stay` shows the demonstration's clock, and says so
until that is the real time.
"""

from __future__ import annotations

import math
import urllib.request
from http.cookiejar import CookieJar

import pytest

from chalicelib.model.policy_permissions import STRICT
from infra.demo.__main__ import clock_name
from infra.demo.fixture import status_page
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.example_clusters import NOW, example


@pytest.mark.parametrize(("until", "named"), [(64.0, True), (math.inf, True), (0.0, False)])
def test_clock_of_the_demonstration_is_named_until_it_is_the_real_time(
    until: float, named: bool
) -> None:
    assert bool(clock_name(lambda: until)) is named


def test_page_shows_the_demonstrations_clock_and_its_name() -> None:
    clock, behind = ManualClock(NOW), [60.0]
    with status_page(example(), clock, STRICT, lambda: clock_name(lambda: behind[0])) as address:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        start = browser.open(address, timeout=60)
        assert "11:06:40 UTC" in (page := start.read().decode())
        assert "the demonstration's time, not the real time" in page.replace("&#39;", "'")
        clock.advance(60.0)
        behind[0] = 0.0
        assert "11:07:40 UTC" in (page := browser.open(start.url, timeout=60).read().decode())
        assert "the demonstration" not in page
