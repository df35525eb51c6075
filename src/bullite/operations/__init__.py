"""What happens inside a transaction, as generators that yield statements and receive rows.

An operation never sees a connection: the engine, a plain cursor or an awaited one can drive it.
It is pure until the commit, so it may be run again after a rollback.
"""
