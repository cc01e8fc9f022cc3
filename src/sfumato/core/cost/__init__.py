"""Privacy accounting: what mechanisms cost, and whether a charge still fits the privacy budget.

`cost` describes one use of a mechanism, `curves` converts between currencies, `sampling` composes noise on
samples, `filter` and `budget` decide whether a charge fits, `parallel` adds up over disjoint parts of the
people.
"""
