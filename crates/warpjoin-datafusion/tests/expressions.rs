//! Expressions on the devices, compared with stock DataFusion.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::sync::Arc;

use common::{assert_same, rows, stock, warp};
use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, col, create_udf};
use warpjoin_datafusion::{Placement, load_table};

/// Comparisons treat both zeros as equal; CASE with an operand, NULLIF and orders distinguish them.
#[tokio::test(flavor = "multi_thread")]
async fn zeros_compare_as_in_datafusion() {
    let (expected, context) = (stock(), warp(2, |_| {}));
    for context in [&expected, &context] {
        let values = "(1, 0.0, '-0.0'), (2, '-0.0', 0.0), (3, 1.0, 'nan'), (4, 'nan', 'nan'), (5, '-0.0', '-0.0'), (6, null, 0.0)";
        for (name, to) in [("doubles", "double"), ("floats", "real")] {
            let sql = format!(
                "create table {name} as select column1 as id, cast(column2 as {to}) as a, cast(column3 as {to}) as b \
                 from (values {values})"
            );
            context.sql(&sql).await.unwrap().collect().await.unwrap();
        }
    }
    for table in ["doubles", "floats"] {
        for sql in [
            "select id, a = b, a <> b, a < b, a <= b, a > b, a >= b, a is distinct from b, a in (0.0, 2.0), a in (b, 5.0), \
             a between 0.0 and 0.0, case a when b then 1 else 0 end, case when a = b then 1 else 0 end, \
             nullif(a, b) is null, count(*) from T group by id, a, b",
            "select count(*) filter (where a = 0), sum(case when a < 0 then 1 else 0 end) from T",
            "select x.id, y.id from T x join T y on x.a <= y.b and x.a >= y.b",
            "select x.id, y.id from T x left join T y on (x.a is not distinct from y.b) and x.id <> y.id",
            "select id, r from (select id, a, row_number() over (order by id) as r from T) where a = 0.0",
            "select id, rank() over (order by a) from T",
            "select max(id), greatest(a, b), least(a, b) from T group by greatest(a, b), least(a, b)",
        ] {
            let sql = sql.replace('T', table);
            let placement = assert_same(&expected, &context, &sql).await;
            assert!(placement.device.iter().all(|part| part.fallback.is_none()), "{sql}: {placement:?}");
        }
    }
}

/// A scalar function `name` that returns the bytes of a string plus `more`. Only its closure knows `more`.
fn bytes_and(name: &str, more: i64) -> ScalarUDF {
    let count = move |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let strings = arrays[0].as_string_view().iter();
        let counts = strings.map(|string| string.map(|string| string.len() as i64 + more));
        Ok(ColumnarValue::Array(Arc::new(counts.collect::<Int64Array>())))
    };
    create_udf(name, vec![DataType::Utf8View], DataType::Int64, Volatility::Immutable, Arc::new(count))
}

/// Different functions with one name are never shared, neither between nor inside parts.
#[tokio::test(flavor = "multi_thread")]
async fn functions_with_one_name_are_distinguished() {
    let (expected, device) = (&stock(), &warp(1, |_| {}));
    let mut plans = vec![];
    for context in [expected, device] {
        let sql = "create table t as select value % 7 as g, repeat('x', value % 50) as x from generate_series(1, 3000)";
        context.sql(sql).await.unwrap().collect().await.unwrap();
        if std::ptr::eq(context, device) {
            load_table(context, "t").await.unwrap();
        }
        let sums = async |more: i64| {
            let function = bytes_and("more", more);
            let value = function.call(vec![col("x")]);
            let table = context.table("t").await.unwrap();
            table.aggregate(vec![col("g")], vec![sum(value).alias("s")]).unwrap()
        };
        // Two parts that differ only in the function.
        let both = sums(1).await.union(sums(1000).await).unwrap();
        // One part with two sums that differ only in the function.
        let (one, other) = (bytes_and("more", 1), bytes_and("more", 1000));
        let values = [one, other].map(|function| function.call(vec![col("x")]));
        let [one, other] = values.map(sum);
        let table = context.table("t").await.unwrap();
        let in_one = table.aggregate(vec![col("g")], vec![one.alias("a"), other.alias("b")]).unwrap();
        plans.push([both, in_one]);
    }
    let [stock, device] = [plans.remove(0), plans.remove(0)];
    for (stock, device) in stock.into_iter().zip(device) {
        let wanted = rows(&stock.collect().await.unwrap(), false);
        let plan = device.clone().create_physical_plan().await.unwrap();
        let placement = Placement::of(&plan);
        assert!(placement.is_on_devices() && placement.aggregates() > 0, "{placement:?}");
        assert_eq!(rows(&device.collect().await.unwrap(), false), wanted);
    }
}

/// Generated code of long expressions over nullable columns stays small. Expressions that copy long operands stay on the CPU.
#[tokio::test(flavor = "multi_thread")]
async fn long_expressions_work() {
    let (expected, context) = (stock(), warp(2, |_| {}));
    for context in [&expected, &context] {
        let sql = "create table t as select column1 as g, column2 as a, cast(column3 as decimal(10, 2)) as d \
                   from (values (1, 2, 1.5), (1, null, 2.25), (2, 3, null))";
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
    let nested =
        |depth: usize, step: fn(String, usize) -> String, first: &str| (0..depth).fold(first.to_string(), step);
    let sums = ["a", "d"].map(|column| nested(200, |inner, _| format!("{inner} + 1"), column));
    let mixed = nested(22, |inner, turn| format!("(a - {inner}) % {}", turn + 7), "a");
    let wide = nested(22, |inner, turn| format!("abs({inner} - a * {turn})"), "a");
    let nullif = nested(14, |inner, turn| format!("nullif({inner}, {})", turn + 100), "a");
    let distinct = nested(12, |inner, turn| format!("(({inner}) is distinct from (a > {turn}))"), "(a > 7)");
    for expression in sums.iter().chain([&mixed, &wide, &nullif]) {
        let sql = format!("select g, sum({expression}), count(*) from t group by g");
        assert_same(&expected, &context, &sql).await;
    }
    assert_same(&expected, &context, &format!("select g, count(*) from t group by g, {distinct}")).await;
}

/// Functions without device code are precomputed if their operands have few values.
#[tokio::test(flavor = "multi_thread")]
async fn functions_of_few_values_run_on_devices() {
    let (expected, context) = (stock(), warp(2, |_| {}));
    for context in [&expected, &context] {
        let sql = "create table t as select value as id, value % 7 - 3 as n, 'a' || (value % 5) as a, \
            case when value % 11 > 0 then 'b' || (value % 13) end as b, \
            arrow_cast('d' || (value % 4), 'Dictionary(Int32, Utf8)') as d, \
            case when value % 9 > 0 then date '2024-02-27' + cast(value % 90 as int) end as day, \
            case when value % 3 > 0 then cast((value % 50) / 4.0 as decimal(9, 2)) end as price, \
            cast(value % 10 as decimal(38, 0)) + cast('99999999999999999999999' as decimal(38, 0)) as huge, \
            value % 2 = 0 as flag, cast(value % 6 as double) as f, cast(value % 200 as tinyint unsigned) as byte, \
            cast(value % 20 as bigint unsigned) + arrow_cast('18446744073709551590', 'UInt64') as top from generate_series(1, 3000)";
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
    for at in 0..2 {
        if at == 1 {
            // The planner knows no bounds of uploaded rows.
            load_table(&context, "t").await.unwrap();
        }
        for expression in [
            "a || b",
            "a || b || d || cast(flag as varchar)",
            "concat(b, '-', a, null)",
            "b like a",
            "strpos(a || b, right(b, 1))",
            "cast(n as varchar)",
            "cast(day as varchar)",
            "try_cast(price as varchar) || a",
            "cast(huge as varchar)",
            "cast(top as varchar) || cast(flag as varchar)",
            "to_char(day, '%Y-%m')",
            "lpad(cast(extract(month from day) as varchar), 2, '0') || '.' || cast(extract(year from day) as varchar)",
            "upper(a || b) || lower(d)",
            "case when a || b = 'a1b1' then 'found' when n > 0 then a else cast(n as varchar) end",
            "power(n, 3)",
            "ln(cast(price as double) + 1)",
            "sin(n) + f",
            "n + character_length(a || b)",
            "a || b is null",
            "coalesce(a || b, 'none')",
            "cast(byte as int) || a || cast(byte as varchar)",
            "(a || b) in ('a1b1', 'a2b2')",
            "cast(substr(a, 2) as int) + n",
            "substr(a || b, n + 4)",
        ] {
            let sql = format!("select {expression}, count(*), min(id) from t group by {expression}");
            let placement = assert_same(&expected, &context, &sql).await;
            assert!(placement.device.iter().all(|part| part.fallback.is_none()), "{sql}: {placement:?}");
            if at == 1 {
                assert!(placement.is_on_devices(), "{sql}: {placement:?}");
            }
        }
        assert_same(&expected, &context, "select a || b, max(c) from (select *, d || d as c from t) group by 1").await;
        let sql = "select x.a || y.b, count(*) from t x join t y on x.a || x.b = y.a || y.b and x.d || y.d > 'd1d2' \
                   where cast(x.n as varchar) || y.a < '1' group by 1";
        assert_same(&expected, &context, sql).await;
    }
    // Expressions with too many combinations, and expressions that fail for combinations that no row has, stay on the CPU.
    let sql = "select cast(id as varchar) || cast(id % 3000 as varchar) as k, count(*) from t group by k";
    assert_same(&expected, &context, sql).await;
    assert_same(&expected, &context, "select cast(a || b as int), count(*) from t where a > 'b' group by 1").await;
    for expression in
        ["cast(12 / n as varchar)", "chr(cast(n as int))", "case when n > 0 then cast(12 / n as varchar) end"]
    {
        let sql = format!("select {expression}, count(*) from t where n <> 0 and n > -1 group by 1");
        let placement = assert_same(&expected, &context, &sql).await;
        assert!(placement.device.iter().all(|part| part.fallback.is_none()), "{sql}: {placement:?}");
    }
    // Functions that read the fields of their arguments.
    let sql = "select arrow_field(id)['name'], arrow_field(n)['nullable'], arrow_field(a)['name'], arrow_typeof(n) || a, count(*) from t group by 1, 2, 3, 4";
    assert_same(&expected, &context, sql).await;
    let chain = (0..40).fold("a".to_string(), |chain, _| format!("{chain} || cast(id as varchar)"));
    assert_same(&expected, &context, &format!("select {chain}, count(*) from t group by 1")).await;
}
