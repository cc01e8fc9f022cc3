"""The ledger: every charge on disk before its answer exists.

`chain` seals entries one to the next, `store` keeps them in a file, `ledger` charges and answers, `report`
says what is spent and left.
"""
