"""Operations: the work of a transaction, as generators that yield statements and receive rows.

An operation has no connection: the engine, or a cursor that is blocking or awaited, can drive it.
It changes nothing outside the transaction, so it may run again after a rollback.
"""
