"""The Parquet files of the eight tables, as written by `tpchgen-cli`.

Reads only footers. Must not know engines.
"""

from pathlib import Path

from common import PeerError, need

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
# No query reads these columns, a quarter of the bytes. Engines that load tables leave them out.
UNREAD_COLUMNS = frozenset({"l_comment", "ps_comment", "p_comment"})
SUPPLIERS_PER_SCALE = 10_000


class Dataset:
    """A folder with a file `TABLE.parquet`, or a folder `TABLE` of Parquet files, per table."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._files = {table: self._find(table) for table in TABLES}
        self._parquet = need("pyarrow.parquet", "requirements-cpu.txt")
        self.scale = self._rows("supplier") / SUPPLIERS_PER_SCALE
        empty = [table for table in TABLES if self._rows(table) == 0]
        if empty:
            raise PeerError(f"{self.folder}: no rows in {', '.join(empty)}")

    def _find(self, table):
        single = self.folder / f"{table}.parquet"
        files = [single] if single.is_file() else sorted((self.folder / table).glob("*.parquet"))
        if not files:
            raise PeerError(
                f"{self.folder} has neither {table}.parquet nor {table}/*.parquet: "
                "make them with `tpchgen-cli parquet -s SCALE -o DIR`"
            )
        return [str(file) for file in files]

    def _rows(self, table):
        return sum(self._parquet.read_metadata(file).num_rows for file in self._files[table])

    def files(self, table):
        """Paths of a table's files."""
        return self._files[table]

    def location(self, table):
        """The table's file, or the folder of its files."""
        files = self._files[table]
        return files[0] if len(files) == 1 else str(Path(files[0]).parent)

    def read_columns(self, table):
        """Names of the columns that the 22 queries read."""
        names = self._parquet.read_schema(self._files[table][0]).names
        return [name for name in names if name not in UNREAD_COLUMNS]
