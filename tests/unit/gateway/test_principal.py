"""Secrets worked out once: a tenant's salt, the ids of its responses, and what they are digested under."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.gateway.data.response_ids import ResponseIds
from roadworthy.gateway.principal import PEPPER_VARIABLE, Principal, pepper_of
from roadworthy.spec.values import Tenant

A, B = Tenant(id="a", key="sk-a"), Tenant(id="b", key="sk-b")
URLS = ("http://10.0.0.1:8000", "http://10.0.0.2:8000")
RANDOM = b"0123456789abcdef" * 2


def salt(tenant: Tenant, pepper: bytes) -> str:
    found = re.fullmatch(rb'"cache_salt":"([0-9a-f]{1,32})",', Principal(tenant, pepper=pepper).salt_field)
    assert found is not None
    return found[1].decode()


def test_a_salt_is_the_tenants_own_and_depends_on_the_pepper() -> None:
    salts = {salt(tenant, pepper) for tenant in (A, B) for pepper in (b"p", b"q")}
    assert len(salts) == 4
    assert salt(A, b"p") == salt(Tenant(id="a", key="sk-new"), b"p"), "a new key leaves the caches warm"


def test_the_pepper_is_the_same_for_the_same_keys_in_any_order_and_its_own_where_it_is_given() -> None:
    assert pepper_of([A, B], {}) == pepper_of([B, A], {})
    assert pepper_of([A, B], {}) != pepper_of([A], {})
    given_one = {PEPPER_VARIABLE: "secret"}
    assert pepper_of([A], given_one) == pepper_of([B], given_one) != pepper_of([A], {})


def test_without_tenants_the_pepper_is_random() -> None:
    assert pepper_of([], {}) != pepper_of([], {})


def test_an_id_names_its_engine_to_its_own_tenant_alone() -> None:
    ids = ResponseIds(b"p")
    made = ids.make("a", URLS[1], RANDOM).decode()
    assert ids.engine_of(made, "a", URLS) == URLS[1]
    assert ids.engine_of(made, "b", URLS) is None
    assert ids.engine_of(made, "a", URLS[:1]) is None, "an engine that left the document"
    assert ResponseIds(b"q").engine_of(made, "a", URLS) is None
    assert ResponseIds(b"p").engine_of(made, "a", URLS) == URLS[1], "every worker reads it"


@given(st.data())
def test_an_id_with_one_character_changed_is_nobodys(data: st.DataObject) -> None:
    ids = ResponseIds(b"p")
    made = ids.make("a", URLS[0], RANDOM).decode()
    at = data.draw(st.integers(0, len(made) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda char: char != made[at]))
    assert ids.engine_of(made[:at] + other + made[at + 1 :], "a", URLS) is None


@pytest.mark.parametrize(
    "text", ["", "resp_", "resp_" + "g" * 64, "resp_" + "0" * 64, "resp_" + "0" * 64 + "\n", "x" * 69]
)
def test_what_is_no_id_of_ours_is_nobodys(text: str) -> None:
    assert ResponseIds(b"p").engine_of(text, "a", URLS) is None
