"""Whose key it is."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.route.keys import ApiKey, Change, digest_of, revoked
from roadworthy.route.tenants import ANONYMOUS, TenantBook
from roadworthy.spec.values import Tenant

PEPPER = b"p" * 32
ACME = Tenant(id="acme", key="sk-acme-0123456789", weight=2.0)
BETA = Tenant(id="beta", key="sk-beta-0123456789")


def test_a_key_finds_its_tenant_and_no_other() -> None:
    book = TenantBook([ACME, BETA], pepper=PEPPER)
    found = book.find(b"sk-acme-0123456789")
    assert found is not None
    assert (found.id, found.weight) == ("acme", 2.0)
    for wrong in (None, b"", b"sk-acme", b"sk-acme-0123456789 ", b"SK-ACME-0123456789", b"\xff"):
        assert book.find(wrong) is None


def test_keys_are_not_kept_in_clear() -> None:
    book = TenantBook([Tenant(id="x", key="-".join(["a", "rare", "key"]))], pepper=PEPPER)
    assert all(tenant.key is None for tenant in book)
    gc.collect()
    reachable, seen = [book.__dict__], []
    while reachable:
        item = reachable.pop()
        seen.append(item)
        if isinstance(item, dict):
            reachable += [*item.keys(), *item.values()]
        elif isinstance(item, tuple):
            reachable += item
    assert "a-rare-key" not in [item for item in seen if isinstance(item, str)]


def test_without_tenants_everyone_is_anonymous() -> None:
    book = TenantBook([], pepper=PEPPER)
    assert book.open_access
    assert book.find(None) is book.find(b"anything") is ANONYMOUS
    assert list(book) == [ANONYMOUS]


def test_every_tenant_without_a_key_or_with_anothers_is_named() -> None:
    tenants = [ACME, Tenant(id="none"), Tenant(id="empty", key=""), Tenant(id="thief", key=ACME.key)]
    with pytest.raises(SpecError) as refused:
        TenantBook(tenants, pepper=PEPPER)
    assert [problem.path for problem in refused.value.problems] == [
        "tenants[1].key",
        "tenants[2].key",
        "tenants[3].key",
    ]
    assert "acme" in refused.value.problems[2].seen
    assert "sk-acme" not in str(refused.value.problems)


def test_the_pepper_changes_every_digest() -> None:
    one, other = TenantBook([ACME], pepper=PEPPER), TenantBook([ACME], pepper=b"q" * 32)
    assert set(one._by_digest).isdisjoint(other._by_digest)


def a_key(key_id: str, text: str, **values: Any) -> ApiKey:
    return ApiKey(id=key_id, prefix=f"rw-{key_id}", digest=digest_of(PEPPER, text), **{"tenant_id": "acme", **values})


def test_issued_keys_open_beside_the_documents_and_bring_their_own_scopes() -> None:
    book = TenantBook([ACME], pepper=PEPPER, keys=[a_key("k1", "one", scopes=("trusted-caller",)), a_key("k2", "two")])
    one, two, own = book.holder(b"one", 0.0), book.holder(b"two", 0.0), book.holder(b"sk-acme-0123456789", 0.0)
    assert one is not None
    assert two is not None
    assert own is not None
    assert (one.trusted, two.trusted, own.trusted) == (True, False, False)
    assert [held.key_id for held in (one, two, own)] == ["k1", "k2", ""]
    assert len(book) == 3


def test_the_documents_key_has_the_scopes_of_its_tenant() -> None:
    book = TenantBook([replace(ACME, scopes=("trusted-caller",))], pepper=PEPPER)
    holder = book.holder(b"sk-acme-0123456789")
    assert holder is not None
    assert holder.trusted


@pytest.mark.parametrize("end", ["expires_s", "revoked_s"])
def test_a_key_opens_until_it_ends_and_without_a_time_it_has_ended(end: str) -> None:
    book = TenantBook([ACME], pepper=PEPPER, keys=[a_key("k1", "one", **{end: 100.0})])
    assert book.find(b"one", 99.9) is not None
    assert book.find(b"one", 100.0) is None
    assert book.find(b"one") is None


def test_what_changes_while_it_runs_holds_from_the_next_look_up() -> None:
    book = TenantBook([ACME, BETA], pepper=PEPPER, keys=[a_key("k1", "one")], managed=True)
    book.apply(Change(tenants=(replace(ACME, key=None, weight=5.0),)))
    for text in (b"one", b"sk-acme-0123456789"):
        found = book.find(text, 0.0)
        assert found is not None
        assert found.weight == 5.0
    book.apply(Change(keys=(revoked(a_key("k1", "one"), 10.0), a_key("k2", "two"))))
    assert book.find(b"one", 11.0) is None
    assert book.find(b"two", 11.0) is not None
    book.apply(Change(keys=(a_key("k2", "rotated"),)))
    assert book.find(b"two", 11.0) is None
    book.apply(Change(keys_gone=("k2",)))
    assert book.find(b"rotated", 11.0) is None


def test_a_tenant_that_goes_takes_its_keys_along_and_they_do_not_come_back_with_its_name() -> None:
    book = TenantBook([ACME, BETA], pepper=PEPPER, keys=[a_key("k1", "one")], managed=True)
    book.apply(Change(tenants_gone=("acme",)))
    assert book.find(b"one", 0.0) is book.find(b"sk-acme-0123456789", 0.0) is None
    book.apply(Change(tenants=(Tenant(id="acme"),)))
    assert book.find(b"one", 0.0) is book.find(b"sk-acme-0123456789", 0.0) is None
    assert [one.id for one in book] == ["beta", "acme"]


def test_a_managed_book_without_tenants_lets_nobody_in() -> None:
    book = TenantBook([], pepper=PEPPER, managed=True)
    assert not book.open_access
    assert book.holder(None) is book.holder(b"anything") is None
    assert list(book) == []


def test_a_new_key_in_the_document_replaces_the_old_one() -> None:
    book = TenantBook([ACME], pepper=PEPPER, managed=True)
    book.apply(Change(tenants=(replace(ACME, key="sk-fresh-key"),)))
    assert book.find(b"sk-acme-0123456789") is None
    assert book.find(b"sk-fresh-key") is not None


def test_a_hundred_thousand_keys_are_found_each_by_its_own_text() -> None:
    tenants = [Tenant(id=f"t{index}") for index in range(1_000)]
    keys = [
        ApiKey(id=f"k{index}", prefix="rw", digest=digest_of(PEPPER, f"key {index}"), tenant_id=f"t{index % 1_000}")
        for index in range(100_000)
    ]
    book = TenantBook(tenants, pepper=PEPPER, keys=keys, managed=True)
    for index in range(0, 100_000, 997):
        holder = book.holder(f"key {index}".encode(), 0.0)
        assert holder is not None
        assert (holder.tenant.id, holder.key_id) == (f"t{index % 1_000}", f"k{index}")
    assert book.holder(b"key 100000", 0.0) is None
