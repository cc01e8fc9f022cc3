"""What a public table tells: groups of correlated columns, for `field-groups`, and rules, for approval."""
