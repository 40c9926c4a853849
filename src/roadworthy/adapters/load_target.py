"""The questions asked of a target before any load: does it answer, as whom may we ask, which model, how it counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.load_stream import is_simulated
from roadworthy.bench.prompts import PROBE_WORDS, Calibration, probe
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.load_client import LoadClient, PlainAnswer


_NO_SUCH_ROUTE = (404, 405, 501)
_NOT_UNDERSTOOD = ("HTTP 400", "HTTP 422")
"""How a strict service answers to a field that it does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that the target lists. ``max_model_len_tokens`` None: it does not say."""

    id: str
    max_model_len_tokens: int | None
    simulated: bool


async def served_model(client: LoadClient, where: str, *, wanted: str | None, key: str | None) -> ServedModel:
    """The model to drive: the one named, or the first that the target lists. A target that has no such list is taken at
    its caller's word.

    Raises:
        ProbeError: the target does not answer, or not with a list of models.
        SpecError: the target does not serve ``wanted``.
    """
    answer = await client.get("/v1/models", key=key)
    if wanted is not None and answer.status in _NO_SUCH_ROUTE:
        return ServedModel(id=wanted, max_model_len_tokens=None, simulated=is_simulated(answer.server))
    cards = _cards(answer, where)
    if wanted is None:
        if not cards:
            raise ProbeError(f"{where} serves no model", hint="name one with --model, or look at the engine's log")
        return cards[0]
    for card in cards:
        if card.id == wanted:
            return card
    served = [card.id for card in cards]
    close = get_close_matches(wanted, served, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "leave --model out to take the first"
    raise SpecError(f"model {wanted!r} is not served by {where}, it serves: {', '.join(served) or 'none'}", hint=hint)


async def check_keys(client: LoadClient, where: str, keys: Iterable[tuple[str, str | None]]) -> None:
    """Ask once as each tenant. Raises ProbeError naming the first that is turned away."""
    for tenant, key in keys:
        _refuse_turned_away(await client.get("/v1/models", key=key), where, f"as tenant {tenant!r}" if tenant else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How the target answers: how it counts, whether it calls itself simulated, and whether it can be told to go on to
    the asked length (``ignore_eos``, which is vLLM's own)."""

    calibration: Calibration
    simulated: bool
    to_its_end: bool


async def calibrate(client: LoadClient, where: str, key: str | None) -> Manner:
    """How the target answers, from two short completions.

    Raises:
        ProbeError: it does not complete them; the message says why.
    """
    counts: list[int | None] = []
    simulated, to_its_end = False, True
    for which in range(len(PROBE_WORDS)):
        outcome = await client.generate(replace(probe(which), key=key, to_its_end=to_its_end))
        if outcome.error.startswith(_NOT_UNDERSTOOD) and to_its_end:
            to_its_end = False
            outcome = await client.generate(replace(probe(which), key=key, to_its_end=False))
        if outcome.error:
            raise ProbeError(
                f"{where}: a completion of one token failed: {outcome.error}",
                hint="the target must stream /v1/chat/completions; mend that before measuring",
            )
        counts.append(outcome.n_in)
        simulated |= outcome.simulated
    few, many = counts
    calibration = Calibration() if few is None or many is None else Calibration.of_probes((few, many))
    return Manner(calibration=calibration, simulated=simulated, to_its_end=to_its_end)


def _refuse_turned_away(answer: PlainAnswer, where: str, who: str) -> None:
    if answer.status in (401, 403):
        raise ProbeError(
            f"{where} turned us away{f' {who}' if who else ''}: HTTP {answer.status}",
            hint="give the tenant's key with --key, or --ready-file FILE as written by `up` or `gateway`",
        )


def _cards(answer: PlainAnswer, where: str) -> tuple[ServedModel, ...]:
    if answer.error:
        raise ProbeError(f"cannot reach {where}: {answer.error}", hint="is it running? `roadworthy up` starts one here")
    _refuse_turned_away(answer, where, "")
    if answer.status != 200:
        raise ProbeError(
            f"{where}/v1/models answered HTTP {answer.status}, wanted a list of models",
            hint="name the port that serves the OpenAI routes, not the admin port",
        )
    try:
        return tuple(_card(card, answer.server) for card in json.loads(answer.body)["data"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProbeError(
            f"{where}/v1/models did not answer with a list of models", hint="is it an OpenAI-compatible service?"
        ) from None


def _card(card: dict[str, Any], server: str) -> ServedModel:
    length = card.get("max_model_len")
    return ServedModel(
        id=str(card["id"]),
        max_model_len_tokens=length if isinstance(length, int) and length > 1 else None,
        simulated=is_simulated(server) or is_simulated(str(card.get("owned_by", ""))),
    )
