"""Regressions on records, for what intervals are compared with."""

import numpy as np


def solve(inputs, target, *, logistic=False):
    """The coefficients of a linear or logistic regression."""
    if not logistic:
        return np.linalg.lstsq(inputs, target, rcond=None)[0]
    values = np.zeros(inputs.shape[1])
    for _ in range(30):
        chances = 1 / (1 + np.exp(-inputs @ values))
        curvature = (inputs * (chances * (1 - chances))[:, None]).T @ inputs
        values = values + np.linalg.solve(curvature, inputs.T @ (target - chances))
    return values
