"""What runs on a Citus cluster alone, and is no part of any other run: `make test-citus`."""

from tests.support.cell_schema import is_citus

collect_ignore_glob = [] if is_citus() else ["test_*.py"]
