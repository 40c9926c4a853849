"""Buy or build: what the service costs, what its tokens cost, and what an API would have cost for the same.

``fixed`` builds the month's fixed cost, ``estimate`` makes capacity and unit cost of it, ``price`` blends an API's
price list, ``compare`` holds the two against each other, ``sensitivity`` asks what moves the result, ``decide`` answers
the decision tree and ``report`` joins them. All pure: no clock, no network, no price that is not dated.
"""

from __future__ import annotations

from roadworthy.cost.estimate import HOURS_PER_MONTH, CostEstimate, Counted, estimate
from roadworthy.cost.fixed import FixedCost, fixed_cost

__all__ = ["HOURS_PER_MONTH", "CostEstimate", "Counted", "FixedCost", "estimate", "fixed_cost"]
