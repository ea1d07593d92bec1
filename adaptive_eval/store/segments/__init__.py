"""Texts of answers outside the ledger, as Parquet files in a folder or in object storage (the extra `segments`).

Imported only for a run that asks for it (`store.answers`), or whose ledger names a segment.
"""
