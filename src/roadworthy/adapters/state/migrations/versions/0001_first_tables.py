"""Tenants, keys, ledger with its daily sums, and the audit trail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    json = sa.JSON(none_as_null=True)
    op.create_table(
        "registry_revision",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO registry_revision VALUES (1, 0)")
    op.create_table(
        "secrets", sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.LargeBinary, nullable=False)
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("definition", json),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, index=True),
        sa.Column("role", sa.Text),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("scopes", json, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("expires_s", sa.Double),
        sa.Column("revoked_s", sa.Double),
        sa.Column("replaced_by", sa.Text),
    )
    op.create_table(
        "ledger",
        sa.Column("request_id", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("started_s", sa.Double, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("ending", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
    )
    op.create_index("ledger_started", "ledger", ["started_s", "request_id"])
    op.create_index("ledger_tenant_started", "ledger", ["tenant_id", "started_s", "request_id"])
    op.create_table(
        "daily",
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("before", json),
        sa.Column("after", json),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_subject", "audit", ["subject", "id"])
