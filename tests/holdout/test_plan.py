"""Plans: the named constants, what they promise, and what is refused."""

import math

import pytest

import sfumato as sf
from helpers.cases import read_cases
from sfumato.accounting import mu_to_epsilon, rho_to_epsilon
from sfumato.holdout import HoldoutPlan, plan_holdout


def own(**changes):
    facts = {"rows": 1000, "questions": 100, "budget": 10, "threshold": "0.1", "sigma": "0.01"}
    return HoldoutPlan(**facts | changes)


@pytest.mark.parametrize("rows", [17, 100, 5000, 10**6 + 1])
def test_practical_constants(rows):
    plan = plan_holdout(rows, questions=10, budget=2)
    assert float(plan.threshold) == pytest.approx(4 / math.sqrt(rows), rel=1e-6)
    assert float(plan.sigma) == pytest.approx(1 / math.sqrt(rows), rel=1e-6)
    assert plan.sigma**2 * rows >= 1  # rounded towards more noise
    assert (plan.noise, plan.constants) == ("gaussian", "practical")


def test_the_privacy_of_laplace_noise_is_two_budgets_over_sigma_rows():
    plan = own(noise="laplace")
    statement = plan.privacy()
    assert statement.epsilon == 2 * 10 / (plan.sigma * 1000)
    assert float(statement.epsilon) == pytest.approx(2.0)
    assert statement.epsilon_at_delta <= 2
    assert {cost.neighbours for cost in statement.costs} == {"replace"}


def test_the_privacy_of_gaussian_noise_counts_every_comparison_and_every_answer():
    statement = own().privacy(delta="1e-6")
    assert statement.epsilon is None
    rho = 110 / (2 * 0.01**2 * 1000**2)
    assert float(statement.rho) == pytest.approx(rho, rel=1e-6)
    assert statement.epsilon_at_delta == pytest.approx(mu_to_epsilon(math.sqrt(2 * rho), "1e-6"), rel=1e-6)
    assert statement.epsilon_at_delta < rho_to_epsilon(rho, "1e-6")


def test_practical_constants_promise_little():
    plan = plan_holdout(5000, questions=6000, budget=1000)
    assert plan.privacy().epsilon_at_delta > 5
    assert plan.accuracy().error is None


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_accuracy_gets_better_with_rows_and_worse_with_questions(noise):
    def error(**changes):
        facts = {"rows": 10**7, "threshold": "0.01", "sigma": "0.001", "noise": noise}
        return own(**facts | changes).accuracy().error

    assert error(rows=10**8) < error() < error(questions=10**5, budget=1000)
    assert error() > 0.01


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rows": 0}, "rows must be a whole number"),
        ({"rows": True}, "rows must be a whole number"),
        ({"questions": 1.5}, "questions must be"),
        ({"budget": -1}, "budget must be"),
        ({"budget": "many"}, "budget must be"),
        ({"sigma": 0}, "sigma must be above zero"),
        ({"sigma": "inf"}, "sigma must be a finite number"),
        ({"threshold": -1}, "threshold must not be negative"),
        ({"noise": "none"}, "kind of noise"),
        ({"constants": "best"}, "constants must be"),
        ({"rows": 10**9, "sigma": 1}, "at most 2\\^50"),
    ],
)
def test_invalid_plans_are_refused(change, told):
    with pytest.raises(sf.RecipeError, match=told):
        own(**change)


@pytest.mark.parametrize(("options", "told"), read_cases(__file__, "test_plans_that_cannot_be_made"))
def test_plans_that_cannot_be_made(options, told):
    with pytest.raises(sf.RecipeError, match=told):
        plan_holdout(**{"rows": 1000, "questions": 10, "budget": 2} | options)


def test_a_description_says_what_is_not_protected():
    told = plan_holdout(10**7, questions=100, budget=10).describe()
    assert "training rows: not protected" in told
    assert "within 0.0" in told
    assert "epsilon" in own(noise="laplace").describe()


def epsilon_of_mu(mu, delta):
    """The epsilon at which Gaussian noise of parameter mu has this delta, from the law of the noise."""

    def excess(epsilon):
        above = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2
        below = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
        return above - math.exp(epsilon) * below

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("rows", "questions", "budget"), [(10**7, 1000, 100), (10**6, 30, 5)])
@pytest.mark.parametrize("failure", [0.05, 0.001])
def test_the_error_is_that_of_the_transfer_theorem(rows, questions, budget, failure):
    """Jung and others (2020), theorem 3.5: answers within a of the sample's with chance 1 - b, and (e, d')-
    private, are within a + e^e - 1 + c + 2 d of the expectations but for a chance of b / c + d' / d.
    """
    plan = plan_holdout(rows, questions=questions, budget=budget)
    draws = questions + budget
    sigma = 1 / math.sqrt(rows)
    mu = math.sqrt(draws) / (sigma * rows)
    grid = [2 ** (-k / 2) for k in range(1, 60)]

    def bound(twice):
        tail = min(sigma * math.sqrt(2 * math.log(2 * draws / (failure * c / 2))) + c for c in grid)
        moved = min(math.expm1(epsilon_of_mu(mu, failure * d / 2)) + twice * d for d in grid)
        return 4 * sigma + tail + moved

    assert bound(2) - bound(1) > 3e-4  # d for 2 d would be seen
    assert plan.accuracy(failure=str(failure)).error == pytest.approx(bound(2), abs=2e-4)
    assert plan.accuracy(failure=str(failure)).error >= bound(2) - 1e-6
