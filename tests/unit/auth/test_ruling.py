"""The ruling: what no combination of policy, polkit's word and grants may do, and that it says what it does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.auth.ceiling import Policy
from aiosd.auth.decision import Decision
from aiosd.auth.grants import HIGHEST
from aiosd.auth.ruling import COMMAND_RUN, Case, Way, rule
from aiosd.model.grant import Grant, Scope
from aiosd.model.status import Level

NOW = 1_767_607_200_000_000
CAPABILITY = "system.disk.usage"
GRANT = Grant("grant-1", 1000, CAPABILITY, Level.MEDIUM, Scope.PERSISTENT, 1000, NOW)

policies = st.builds(
    Policy,
    max_level=st.sampled_from(Level),
    always_deny=st.sampled_from([(), ("system.*",), ("net.*",)]),
    auto_grant=st.sampled_from([None, (), ("*",)]),
    require_audit=st.sampled_from([(), ("*",)]),
    root_command_without_approval=st.booleans(),
)
cases = st.builds(
    Case,
    capability_id=st.sampled_from([CAPABILITY, COMMAND_RUN]),
    level=st.sampled_from(Level),
    is_root=st.booleans(),
    policy=policies,
    polkit=st.sampled_from([None, *Decision]),
    grant=st.sampled_from([None, GRANT]),
)


@given(cases)
def test_the_ceiling_is_over_everything_and_everybody(case: Case) -> None:
    if case.level <= case.policy.max_level and case.policy.denies(case.capability_id) is None:
        return
    ruling = rule(case)
    assert (ruling.way, ruling.reason) == (Way.REFUSE, "policy")


@given(cases)
def test_only_a_yes_a_grant_or_the_administrator_spares_the_question(case: Case) -> None:
    if rule(case).way is not Way.ALLOW or case.is_root or case.polkit is Decision.ALLOWED:
        return
    assert case.level <= HIGHEST
    assert case.polkit in (None, Decision.CHALLENGE)
    assert case.grant is not None or case.policy.grants(case.capability_id) is not None


@given(cases)
def test_what_is_critical_needs_its_approval_whoever_says_yes(case: Case) -> None:
    ruling = rule(case)
    if ruling.way is Way.REFUSE:
        return
    spared = case.is_root and case.capability_id == COMMAND_RUN and case.policy.root_command_without_approval
    assert ruling.needs_approval == (case.level is Level.CRITICAL and not spared)


@given(cases)
def test_a_no_of_polkit_s_is_a_no_whatever_was_granted(case: Case) -> None:
    no = (Decision.DENIED, Decision.DISMISSED, Decision.UNAVAILABLE)
    assert case.is_root or case.polkit not in no or rule(case).way is Way.REFUSE


@given(cases)
def test_it_says_why_in_sentences(case: Case) -> None:
    ruling = rule(case)
    assert len(ruling.because) >= 2
    assert all(text.endswith((".", ").")) for text in ruling.because)


@given(cases)
def test_a_grant_is_used_only_where_it_is_what_decides(case: Case) -> None:
    used = rule(case).grant
    decides = rule(case).way is Way.ALLOW and rule(replace(case, grant=None)).way is Way.ASK
    assert (used is not None) == decides


@given(cases)
def test_more_than_public_is_audited(case: Case) -> None:
    ruling = rule(case)
    if case.level >= Level.LOW or case.policy.audits(case.capability_id):
        assert ruling.audited


@pytest.mark.parametrize(
    ("case", "way", "words"),
    [
        (Case(CAPABILITY, Level.LOW, False, Policy(), Decision.CHALLENGE), Way.ASK, "kept as a grant"),
        (Case(CAPABILITY, Level.HIGH, False, Policy(), Decision.CHALLENGE), Way.ASK, "each time"),
        (Case(CAPABILITY, Level.HIGH, False, Policy(auto_grant=("*",)), Decision.CHALLENGE), Way.ASK, "each time"),
        (
            Case(CAPABILITY, Level.LOW, False, Policy(auto_grant=("system.*",)), Decision.CHALLENGE),
            Way.ALLOW,
            "auto_grant",
        ),
        (Case(CAPABILITY, Level.MEDIUM, False, Policy(), Decision.CHALLENGE, GRANT), Way.ALLOW, "grant-1"),
        (Case(CAPABILITY, Level.LOW, True, Policy()), Way.ALLOW, "Root"),
        (Case(CAPABILITY, Level.LOW, True, Policy(always_deny=("system.*",))), Way.REFUSE, "always_deny"),
        (Case(CAPABILITY, Level.LOW, False, Policy(), Decision.UNAVAILABLE), Way.REFUSE, "did not answer"),
    ],
)
def test_examples(case: Case, way: Way, words: str) -> None:
    ruling = rule(case)
    assert ruling.way is way
    assert any(words in text for text in ruling.because)
