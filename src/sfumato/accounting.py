"""Privacy accounting: what mechanisms cost, what a budget admits, and the ledger that enforces it.

`cost` describes one use of a mechanism, `curves` converts between currencies, `sampling` composes noise on
samples, `filter` and `budget` decide whether a charge fits, `parallel` adds up over disjoint parts of the
people, `chain` seals charges one to the next, `ledger` keeps them in a `store` or in `postgres`.
"""

from sfumato.core.cost.budget import (
    Amount,
    Budget,
    Spent,
    add_costs,
    admits,
    describe_charge,
    describe_costs,
    left,
    read_epsilon,
)
from sfumato.core.cost.cost import (
    Cost,
    CostKind,
    discrete_laplace_rho,
    exponential_mu,
    exponential_rho,
    pure_to_mu,
    pure_to_rho,
    selection_threshold,
    sqrt_up,
)
from sfumato.core.cost.curves import (
    discrete_gaussian_delta,
    discrete_gaussian_sigma,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    histogram_sensitivity,
    max_mu,
    max_rho,
    mu_to_delta,
    mu_to_epsilon,
    mu_to_pure,
    rho_to_delta,
    rho_to_epsilon,
    rho_to_pure,
)
from sfumato.core.cost.parallel import Allowance
from sfumato.core.cost.sampling import sampled_delta
from sfumato.core.ledger.chain import Anchor, Entry, parse_anchor
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.ledger.report import BudgetReport
from sfumato.core.ledger.store import find_store, locate_ledger

__all__ = [
    "Allowance",
    "Amount",
    "Anchor",
    "Budget",
    "BudgetReport",
    "Cost",
    "CostKind",
    "Entry",
    "Ledger",
    "Spent",
    "add_costs",
    "admits",
    "describe_charge",
    "describe_costs",
    "discrete_gaussian_delta",
    "discrete_gaussian_sigma",
    "discrete_laplace_rho",
    "exponential_mu",
    "exponential_rho",
    "find_store",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "histogram_sensitivity",
    "left",
    "locate_ledger",
    "max_mu",
    "max_rho",
    "mu_to_delta",
    "mu_to_epsilon",
    "mu_to_pure",
    "parse_anchor",
    "pure_to_mu",
    "pure_to_rho",
    "read_epsilon",
    "rho_to_delta",
    "rho_to_epsilon",
    "rho_to_pure",
    "sampled_delta",
    "selection_threshold",
    "sqrt_up",
]
