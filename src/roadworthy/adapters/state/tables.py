"""The tables, the same for SQLite and PostgreSQL; ``migrations`` makes them.

Times are seconds of the epoch, days are ``YYYY-MM-DD`` in UTC. Nothing refers to another table by a foreign key: a
request of a tenant that is gone is still billed.
"""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

_JSON = sa.JSON(none_as_null=True)
_TOKENS = sa.BigInteger

revision = sa.Table(
    "registry_revision", METADATA,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),  # one row, id 1
    sa.Column("revision", sa.BigInteger, nullable=False),
)  # fmt: skip

secrets = sa.Table(
    "secrets", METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)  # fmt: skip

tenants = sa.Table(
    "tenants", METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("definition", _JSON),  # NULL: removed by an administrator
    sa.Column("version", sa.BigInteger, nullable=False),
)  # fmt: skip

api_keys = sa.Table(
    "api_keys", METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, index=True),
    sa.Column("role", sa.Text),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("scopes", _JSON, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("created_s", sa.Double, nullable=False),
    sa.Column("expires_s", sa.Double),
    sa.Column("revoked_s", sa.Double),
    sa.Column("replaced_by", sa.Text),
)  # fmt: skip

ledger = sa.Table(
    "ledger", METADATA,
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("endpoint", sa.Text, nullable=False),
    sa.Column("operation", sa.Text, nullable=False),
    sa.Column("started_s", sa.Double, nullable=False),
    sa.Column("prompt_tokens", _TOKENS, nullable=False),
    sa.Column("cached_tokens", _TOKENS, nullable=False),
    sa.Column("output_tokens", _TOKENS, nullable=False),
    sa.Column("ending", sa.Text, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("estimated", sa.Boolean, nullable=False),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Index("ledger_started", "started_s", "request_id"),
    sa.Index("ledger_tenant_started", "tenant_id", "started_s", "request_id"),
)  # fmt: skip

daily = sa.Table(
    "daily", METADATA,
    sa.Column("day", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("prompt_tokens", _TOKENS, nullable=False),
    sa.Column("cached_tokens", _TOKENS, nullable=False),
    sa.Column("output_tokens", _TOKENS, nullable=False),
)  # fmt: skip

audit = sa.Table(
    "audit", METADATA,
    # SQLite numbers rows by itself only where the key is its INTEGER; AUTOINCREMENT never gives a number twice
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at_s", sa.Double, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("before", _JSON),
    sa.Column("after", _JSON),
    sa.Index("audit_subject", "subject", "id"),
    sqlite_autoincrement=True,
)  # fmt: skip
