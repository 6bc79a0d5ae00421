"""Every code has words, and the words that scripts rely on are the scheduler's and upstream's own."""

from __future__ import annotations

import pytest

from chalicelib.model.reason import Code, Reason
from chalicelib.plan.explain import sentence, text


@pytest.mark.parametrize("code", list(Code))
def test_every_code_becomes_a_sentence_even_without_its_numbers(code: Code) -> None:
    params: dict[str, str | int | float] = {"rule": "NotReplicated"} if code is Code.BLOCKED_BY_POD else {}
    assert text(Reason(code, params)).strip()
    assert sentence(Reason(code, params)).startswith(text(Reason(code, params)))


@pytest.mark.parametrize(("reason", "words", "whole"), [
    (Reason.of(Code.INSUFFICIENT, resource="cpu", needs=8000, offers=3900), "Insufficient cpu",
     "Insufficient cpu (needs 8, template offers 3900m)"),
    (Reason.of(Code.INSUFFICIENT, resource="memory", needs=2**34, offers=3 * 2**29), "Insufficient memory",
     "Insufficient memory (needs 16Gi, template offers 1.5Gi)"),
    (Reason.of(Code.UNTOLERATED_TAINT, taint="k=v:NoSchedule"), "node(s) had untolerated taint(s)",
     "node(s) had untolerated taint(s) (k=v:NoSchedule)"),
    (Reason.of(Code.GROUP_MAX_SIZE, max=10), "max node group size reached", "max node group size reached (max 10)"),
    (Reason.of(Code.BLOCKED_BY_POD, pod="ns/a", rule="LocalStorageRequested", volume="tmp"), "blocked by pod ns/a",
     "blocked by pod ns/a (LocalStorageRequested: it uses local storage (volume tmp))"),
])
def test_words_and_numbers(reason: Reason, words: str, whole: str) -> None:
    assert (text(reason), sentence(reason)) == (words, whole)
