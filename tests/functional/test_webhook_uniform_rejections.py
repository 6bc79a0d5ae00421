"""An unauthenticated caller learns only the HTTP status: a rejection costs the same work and gives
the same line for known and unknown clusters.

Work is counted instead of timed: reads of tables and secrets, digests, comparisons, lines.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from chalicelib.functions import webhook
from chalicelib.functions.http_response import HttpError
from chalicelib.runtime.active_policy import read
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.webhook_credentials import WebhookCredentials
from chalicelib.store.policies import StoredPolicy, StoredWebhook
from tests.functional.app_client import HMAC, AppClient, sample

BODY = sample("core-v1-failed-scheduling")
SECRET = "outscaler/shop/webhook"
TEXT = f"""\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: shop}}
spec:
  kubernetes: {{kubeconfigSecret: outscaler/shop/kubeconfig}}
  providers: {{clusterapi: {{namespace: capi}}}}
  webhook: {{secret: {SECRET}}}
"""
DIGESTS = ("openssl_sha256", "hmac_new", "hmac_digest", "compare_digest")
STRANGERS = ("no-such-cluster", "NOT A NAME", "x" * 5000, "\ud800", "")


class Counted:
    """A runtime that counts its work. work: of the calls since the last `refused`."""

    def __init__(self, desk: AppClient) -> None:
        self.work: Counter[str] = Counter()
        doors = WebhookCredentials(
            webhooks=self._webhooks,
            current=self._current,
            load=read,
            read_secret=self._secret,
            clock=desk.clock,
        )
        self.runtime: Runtime = dataclasses.replace(desk.runtime, webhook_credentials=doors)

    def _webhooks(self) -> dict[str, StoredWebhook]:
        self.work["query"] += 1
        return {"shop": StoredWebhook(1, SECRET)}

    def _current(self, name: str) -> StoredPolicy | None:
        self.work["policy"] += 1
        return StoredPolicy("shop", 1, TEXT, "", 0.0) if name == "shop" else None

    def _secret(self, name: str) -> str:
        self.work["secret"] += 1
        assert name == SECRET
        return HMAC

    def refused(self, name: str, headers: dict[str, str]) -> tuple[int, Counter[str]]:
        """Sends a request that is rejected; returns its status and the work."""
        self.work = Counter()
        sys.setprofile(self._count)
        try:
            with pytest.raises(HttpError) as caught:
                webhook.handle(name, headers, BODY, self.runtime)
        finally:
            sys.setprofile(None)
        return caught.value.status, self.work

    def _count(self, _frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in DIGESTS:
            self.work[called.__name__] += 1


def _wrong(desk: AppClient) -> list[dict[str, str]]:
    return [
        {},
        desk.signed("shop", BODY, key="not-the-right-value"),
        {"Authorization": "Bearer not-the-right-token"},
        desk.signed("shop", BODY, at=desk.clock() - 1000),
    ]


def test_rejection_costs_the_same_work_for_known_and_unknown_clusters(desk: AppClient) -> None:
    """Except for a known cluster's secret, which is read at first, and
    again for a wrong signature."""
    requests = list(_wrong(desk))
    assert requests
    for headers in requests:
        counted = Counted(desk)
        known, work = counted.refused("shop", headers)  # for the first time in this process
        assert (known, work["query"], work["policy"]) == (401, 1, 0)
        assert 1 <= work["secret"] <= 2
        assert work["compare_digest"] >= 4
        _, later = counted.refused("shop", headers)
        assert (later["query"], later["secret"], later["policy"]) == (0, 0, 0)
        for stranger in STRANGERS:
            fresh = Counted(desk)
            assert fresh.refused(stranger, headers) == (404, work - Counter(secret=2)), stranger
            assert fresh.refused(stranger, headers) == (404, later), stranger


def test_rejection_logs_one_line_with_the_same_fields_for_known_and_unknown(
    desk: AppClient, log: io.StringIO
) -> None:
    counted = Counted(desk)
    requests = list(_wrong(desk))
    assert requests
    for headers in requests:
        fields = set()
        for name in ("shop", *STRANGERS):
            log.seek(0)
            log.truncate()
            counted.refused(name, headers)
            [line] = log.getvalue().splitlines()
            said = json.loads(line)
            assert (said["message"], said["level"]) == ("webhook refused", "WARNING")
            assert len(said["cluster"]) <= 70
            assert said["cause"]
            fields.add(frozenset(said))
        assert len(fields) == 1


def test_replayed_request_logs_one_line(desk: AppClient, log: io.StringIO) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    assert desk.post(name, BODY, headers).status_code == 202
    log.seek(0)
    log.truncate()
    assert desk.post(name, BODY, headers).status_code == 401
    [line] = log.getvalue().splitlines()
    assert json.loads(line)["cause"] == "signature was used before"
