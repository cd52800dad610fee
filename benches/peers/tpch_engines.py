"""The engines: how to open each, add tables, and run queries.

`open` starts an engine, `add_tables` registers or loads the files, and `add_queries` sets the texts or
definitions of queries. Only `execute` is timed: from SQL text, or from building a lazy frame, to Arrow data
on the host. `to_arrow` converts the result to a pyarrow table for the checksum, and is not timed.
"""

import os
import sys
from types import SimpleNamespace

from common import PeerError, core_count, need, need_gpu, processor_name
from tpch_answers import Tolerance
from tpch_data import TABLES

CPU = "requirements-cpu.txt"
GPU = "requirements-gpu.txt"
# DataFusion's default batch size.
BATCH_ROWS = 8192


class DuckDb:
    """DuckDB, with views over files, or with its own compressed tables in memory."""

    name = "duckdb"
    executors = ()
    tolerance = Tolerance.EXACT

    def open(self, _executor):
        duckdb = need("duckdb", CPU)
        need("pyarrow", CPU)
        self.version = duckdb.__version__
        self.device = processor_name()
        self.connection = duckdb.connect()

    def add_tables(self, data, resident):
        if resident:
            self.connection.execute("ATTACH ':memory:' AS loaded (COMPRESS)")
            self.connection.execute("USE loaded")
        for table in TABLES:
            files = ", ".join("'" + file.replace("'", "''") + "'" for file in data.files(table))
            columns = ", ".join(data.read_columns(table)) if resident else "*"
            kind = "TABLE" if resident else "VIEW"
            self.connection.execute(f"CREATE {kind} {table} AS SELECT {columns} FROM read_parquet([{files}])")
        if resident:
            # Compresses recently inserted rows.
            self.connection.execute("CHECKPOINT loaded")

    def add_queries(self, texts, _data):
        self.texts = texts

    def execute(self, number):
        return self.connection.sql(self.texts[number]).to_arrow_table()

    def to_arrow(self, answer):
        return answer


class DataFusion:
    """Stock DataFusion with its defaults, over files, or over batches in memory with one partition per core."""

    name = "datafusion"
    executors = ()
    tolerance = Tolerance.EXACT

    def open(self, _executor):
        self.module = need("datafusion", CPU)
        self.arrow = need("pyarrow", CPU)
        self.version = self.module.__version__
        self.device = processor_name()
        self.context = self.module.SessionContext()

    def add_tables(self, data, resident):
        # A separate context loads the tables, so that its caches of footers and statistics are dropped.
        reader = self.module.SessionContext() if resident else self.context
        for table in TABLES:
            reader.register_parquet(table, data.location(table))
            if not resident:
                continue
            columns = ", ".join(data.read_columns(table))
            # DataFusion reads the files, so that the batches have its preferred types.
            batches = reader.sql(f"SELECT {columns} FROM {table}").collect()
            pieces = [batch.slice(at, BATCH_ROWS) for batch in batches for at in range(0, len(batch), BATCH_ROWS)]
            partitions = [pieces[core :: core_count()] for core in range(core_count())]
            self.context.register_record_batches(table, [part for part in partitions if part])

    def add_queries(self, texts, _data):
        self.texts = texts

    def execute(self, number):
        frame = self.context.sql(self.texts[number])
        return frame, frame.collect()

    def to_arrow(self, answer):
        frame, batches = answer
        return self.arrow.Table.from_batches(batches, batches[0].schema if batches else frame.schema())


class Polars:
    """Polars on the CPU, over files, or over data frames in memory.

    The queries are those of the package cudf-polars, which can be imported without a GPU.
    """

    name = "polars"
    executors = ("streaming", "in-memory")
    tolerance = Tolerance.ROUNDED

    def open(self, executor):
        self.polars = need("polars", CPU)
        self.queries = need("cudf_polars.streaming.benchmarks.pdsh", GPU)
        self.version = self.polars.__version__
        self.device = processor_name()
        self.engine = executor

    def add_tables(self, data, resident):
        if resident:
            frames = {}
            for table in TABLES:
                frame = self.polars.scan_parquet(data.files(table)).select(data.read_columns(table))
                frames[table] = frame.collect()
            self.scan = lambda table: frames[table].lazy()
        else:
            self.scan = lambda table: self.polars.scan_parquet(data.files(table))

    def add_queries(self, _texts, data):
        # The queries call this function of their module to open a table.
        self.queries.get_data = lambda _folder, table, _suffix="": self.scan(table)
        self.settings = SimpleNamespace(
            dataset_path=str(data.folder),
            suffix=".parquet",
            scale_factor=data.scale,
            qualification=False,
            query_set="pdsh",
        )

    def execute(self, number):
        query = getattr(self.queries.PDSHQueries, f"q{number}")(self.settings)
        return query.frame.collect(engine=self.engine)

    def to_arrow(self, answer):
        return answer.to_arrow()


class CudfPolars(Polars):
    """cudf-polars on the first GPU, over files. It cannot keep tables on the device between queries."""

    name = "cudf-polars"
    executors = ("in-memory", "streaming")

    def open(self, executor):
        device = need_gpu()
        super().open(executor)
        self.device = device
        self.version = f"{need('cudf_polars', GPU).__version__} (polars {self.polars.__version__})"
        options = {}
        if executor == "in-memory":
            # Plain device memory, since managed memory can be oversubscribed.
            options["memory_resource"] = need("rmm", GPU).mr.CudaAsyncMemoryResource()
        # Queries that the GPU cannot run fail, instead of falling back to Polars.
        self.engine = self.polars.GPUEngine(executor=executor, raise_on_fail=True, **options)
        # Opens the device with a query unlike those that are measured.
        self.polars.LazyFrame({"word": [1, 2]}).select(self.polars.sum("word")).collect(engine=self.engine)

    def add_tables(self, data, resident):
        if resident:
            raise PeerError("cudf-polars cannot keep tables on the device between queries: use --source files")
        super().add_tables(data, resident)


ENGINES = {engine.name: engine for engine in (DuckDb, DataFusion, Polars, CudfPolars)}


def leave(engine, status):
    """Ends the process if the engine needs it, else returns the exit status."""
    if isinstance(engine, CudfPolars):
        # Interpreter shutdown may free device memory after the context is destroyed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
