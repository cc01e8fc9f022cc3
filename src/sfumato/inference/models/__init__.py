"""The mathematics of models: from noisy sums to coefficients and shapes, and from these to predictions.

Pure functions of public facts and noisy numbers: nothing here knows a plan or a record.
"""
