"""Results as plain values: what the commands print with ``--json``, and what is served over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.longdoc.cite import Citation
    from roadworthy.longdoc.converse import Answer, Claim
    from roadworthy.longdoc.playbook import Playbook, Row
    from roadworthy.longdoc.search import Hit


def hit_json(hit: Hit) -> dict[str, object]:
    """One result of a search."""
    unit = hit.stored.unit
    return {
        "document": hit.stored.document, "section": unit.label, "title": unit.title, "path": unit.path,
        "page": unit.page,
        "start": unit.char_start, "end": unit.char_end, "score": hit.score, "named": hit.named, "text": unit.text,
    }  # fmt: skip


def answer_json(answer: Answer, model: str) -> Mapping[str, object]:
    """An answer as it is printed and served."""
    return {
        "question": answer.question, "outcome": answer.outcome, "model": model,
        "claims": [claim_json(one) for one in answer.claims],
        "unverified": [claim_json(one) for one in answer.unverified],
        "passages": [
            {"id": one.id, "document": one.stored.document, "section": one.stored.unit.label, "place": one.place}
            for one in answer.passages
        ],
        "rounds": answer.rounds, "notes": answer.notes,
    }  # fmt: skip


def claim_json(claim: Claim) -> Mapping[str, object]:
    return {
        "text": claim.text, "verified": claim.verified, "supported": claim.supported, "problems": claim.problems,
        "citations": [citation_json(one) for one in claim.citations],
    }  # fmt: skip


def citation_json(citation: Citation) -> Mapping[str, object]:
    return {
        "document": citation.document, "section": citation.section, "path": citation.path, "page": citation.page,
        "quote": citation.quote, "start": citation.start, "end": citation.end,
    }  # fmt: skip


def risk_json(
    book: Playbook,
    document: str,
    model: str,
    rows: Sequence[Row],
    unread: Mapping[str, str],
    clauses: int,
    resumed: int,
) -> Mapping[str, object]:
    """A risk table as one document."""
    return {
        "playbook": book.name, "document": document, "model": model, "clauses": clauses, "resumed": resumed,
        "risks": [
            {
                "check": row.check.id, "topic": row.check.topic, "severity": row.check.severity, "status": row.status,
                "risk": row.risk, "wanted": row.check.wanted,
                "judgements": [
                    {
                        "section": one.section, "verdict": one.verdict, "why": one.why, "verified": one.verified,
                        "citations": [citation_json(each) for each in one.citations],
                    }
                    for one in row.judgements
                ],
            }
            for row in rows
        ],
        "unread": [{"clause": clause, "reason": reason} for clause, reason in unread.items()],
    }  # fmt: skip
