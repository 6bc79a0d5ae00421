"""A request that was not processed may be sent again unchanged; a processed one may not."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from chalicelib.functions import webhook
from chalicelib.functions.http_response import HttpError
from chalicelib.runtime.runtime import install
from chalicelib.store import Store
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.functional.app_client import AppClient, sample

BODY = sample("core-v1-failed-scheduling")
GATHERED = BODY.replace(b"FailedScheduling", b"Evicted")
UNINTERESTING = BODY.replace(b"FailedScheduling", b"Pulled")


@pytest.fixture
def faults(desk: AppClient) -> AwsFaults:
    """Starts faults of the table."""
    script = AwsFaults()
    store = Store(
        desk.store.table.name,
        clock=desk.clock,
        sleep=desk.clock.advance,
        client=desk.store.table.client,
        wrap=script.wrap,
    )
    install(dataclasses.replace(desk.runtime, store=store))
    return script


def test_request_rejected_by_the_queue_may_be_repeated_and_counts_once(desk: AppClient) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    desk.outbox.full.add("reconcile")
    assert desk.post(name, BODY, headers).status_code == 503
    desk.outbox.full.clear()
    again = desk.post(name, BODY, headers)
    assert (again.status_code, again.json_body["woken"]) == (202, True)
    assert desk.post(name, BODY, headers).status_code == 401
    assert len(desk.outbox.scans()) == 1


def test_unconfirmed_write_of_a_debounce_window_loses_no_event(
    desk: AppClient, faults: AwsFaults
) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    faults.after("put_item", lost_answer())
    assert desk.post(name, BODY, headers).status_code == 503
    again = desk.post(name, BODY, headers)
    assert (again.status_code, again.json_body["woken"]) == (202, True)
    assert desk.post(name, BODY, headers).status_code == 401


def test_unconfirmed_write_of_a_signature_allows_its_repetition(
    desk: AppClient, faults: AwsFaults
) -> None:
    name = desk.cluster()
    headers = desk.signed(name, UNINTERESTING)
    faults.after("put_item", lost_answer())
    assert desk.post(name, UNINTERESTING, headers).status_code == 503
    assert desk.post(name, UNINTERESTING, headers).status_code == 202
    assert desk.post(name, UNINTERESTING, headers).status_code == 401


def test_lost_answers_of_all_table_writes_leave_the_request_repeatable(
    desk: AppClient, faults: AwsFaults
) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    faults.instead("put_item", lost_answer())
    faults.instead("delete_item", lost_answer())
    assert desk.post(name, BODY, headers).status_code == 503
    again = desk.post(name, BODY, headers)
    assert (again.status_code, again.json_body["woken"]) == (202, True)


def test_many_simultaneous_copies_of_a_request_are_processed_once(desk: AppClient) -> None:
    name = desk.cluster()
    headers = desk.signed(name, GATHERED)

    def status(_: int) -> int:
        try:
            return webhook.handle(name, headers, GATHERED, desk.runtime).status
        except HttpError as refused:
            return refused.status

    with ThreadPoolExecutor(4) as callers:
        answers = sorted(callers.map(status, range(8)))
    assert answers == [202] + [401] * 7
    assert len(desk.outbox.scans()) == 1
