"""The contract of every ledger, on PostgreSQL."""

import pytest
from ledger_contract import LedgerContract

pytestmark = pytest.mark.postgres


class TestTheContractOnPostgres(LedgerContract):
    """In a database."""
