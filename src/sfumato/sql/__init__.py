"""DP-SELECT: statements read, checked and planned, and noisy answers finished.

A statement goes through statement (its text), normalize (one way of writing), nested (queries around an
aggregate), check (what is allowed), relation (what can be named), sources (FROM, JOIN and WHERE; with inner
for what stands in them), settle (constants as what they meet), aggregates (the select list), rollups
(grouping sets) and planner (its plan), or rows if it asks for rows; what public facts answer is in listing.
An engine is asked what the plan says, the curator adds noise, with choices for quantiles and labels, and
with bounds that are chosen first if nobody knows them, and finish makes the answer.
"""
