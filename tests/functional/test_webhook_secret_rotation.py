"""A rotated webhook secret works with the first event signed with it, and wrong
signatures cost few reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.exceptions import EndpointConnectionError

from chalicelib.runtime.runtime import SECRET_KEPT_FOR, install
from tests.functional.app_client import HMAC, AppClient
from tests.functional.test_webhook_cost import BODY, _bill, _cluster

OTHER = "another-hmac-value-for-tests"
READ = "GetSecretValue"


@pytest.fixture
def cold(desk: AppClient) -> Iterator[AppClient]:
    """Resets the process state, so that nothing has been read yet."""
    fresh = desk.premises.desk()
    install(fresh.runtime)
    yield fresh
    install(None)


def _post(desk: AppClient, name: str, key: str) -> int:
    desk.clock.advance(0.01)
    return desk.post(name, BODY, desk.signed(name, BODY, key=key, at=desk.clock() + 1)).status_code


def test_first_event_with_the_new_secret_is_accepted(cold: AppClient) -> None:
    name = _cluster(cold)
    assert _post(cold, name, HMAC) == 202
    cold.put_secret(f"outscaler/{name}/webhook", {"hmac": OTHER})
    assert _post(cold, name, OTHER) == 202
    cold.clock.advance(1.0)
    assert _post(cold, name, HMAC) == 401, "and the old one is refused from then on"


def test_flood_of_wrong_signatures_causes_few_secret_reads(cold: AppClient) -> None:
    name = _cluster(cold)
    with _bill(cold) as bill:
        for _ in range(600):
            assert _post(cold, name, "wrong-value-of-a-stranger") == 401
            cold.clock.advance(0.1)
    assert bill.calls[READ] <= 4, "the first read, and one in thirty seconds"
    assert _post(cold, name, HMAC) == 202


def test_flood_delays_a_rotated_secret_only_briefly(cold: AppClient) -> None:
    name = _cluster(cold)
    assert _post(cold, name, "wrong-value-of-a-stranger") == 401
    cold.put_secret(f"outscaler/{name}/webhook", {"hmac": OTHER})
    statuses = []
    for _ in range(4):
        statuses.append(_post(cold, name, OTHER))
        cold.clock.advance(10.0)
    assert 202 in statuses


def test_unknown_clusters_cause_no_secret_read(cold: AppClient) -> None:
    with _bill(cold) as bill:
        for number in range(50):
            assert _post(cold, f"nobody-{number}", HMAC) == 404
    assert READ not in bill.calls


def test_secret_is_read_once_in_ten_minutes_without_wrong_signatures(cold: AppClient) -> None:
    name = _cluster(cold)
    with _bill(cold) as bill:
        for _ in range(20):
            assert _post(cold, name, HMAC) == 202
            cold.clock.advance(SECRET_KEPT_FOR / 20)
    assert bill.calls[READ] <= 2


def test_known_secret_stays_in_use_while_aws_does_not_return_a_newer_one(cold: AppClient) -> None:
    name = _cluster(cold)
    assert _post(cold, name, HMAC) == 202

    events = cold.premises.secrets.meta.events
    events.register_first("before-send.secrets-manager.GetSecretValue", _unavailable)
    try:
        assert _post(cold, name, "wrong-value-of-a-stranger") == 401
    finally:
        events.unregister("before-send.secrets-manager.GetSecretValue", _unavailable)
    cold.clock.advance(1.0)
    assert _post(cold, name, HMAC) == 202


def _unavailable(**_: object) -> None:
    raise EndpointConnectionError(endpoint_url="https://secretsmanager.example")
