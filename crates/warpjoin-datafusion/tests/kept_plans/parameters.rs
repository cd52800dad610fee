//! Queries that differ in literals only share a plan, with the answers of their own literals.

use datafusion::common::Result;
use datafusion::prelude::SessionContext;
use warpjoin_datafusion::{Placement, Query, WarpjoinSessionContext};

use crate::common::stock;
use crate::{rows, run, session, tables};

/// Runs the query with each value in the place of `?`, and compares with stock DataFusion. Returns which of them found a plan.
async fn with_values(context: &SessionContext, stock: &SessionContext, template: &str, values: &[&str]) -> Vec<bool> {
    let mut found = vec![];
    for value in values {
        let sql = template.replace('?', value);
        let query = context.query(&sql).await.unwrap();
        found.push(query.is_kept());
        let plan = query.plan().clone();
        let answer = rows(&query.collect().await.unwrap());
        assert_eq!(answer, rows(&run(stock, &sql).await), "{sql}");
        assert!(Placement::of(&plan).is_wholly_on_devices(), "{sql}");
    }
    found
}

/// From the third value on, the plan is found.
#[tokio::test]
async fn other_literals_find_the_plan() {
    let (context, stock) = (session().await, stock());
    tables(&stock, false).await;
    let templates: [(&str, &[&str]); 36] = [
        ("select count(*) from t where a in (?)", &["1, 2, 3, 4", "9, 8, 7, 6", "0, 100, 200, -1", "5, 55, 50, 54"]),
        ("select count(*) from t where a not in (?)", &["1, 2, 3, 4, 5", "9, 8, 7, 6, 0", "0, 100, 200, -1, 3"]),
        ("select sum(a) from t where d in (?)", &["1, 2, 3, 4", "9, 8.5, 7, 6", "0, 100, 200.00, -1"]),
        (
            "select k, count(*) from t where s in (?) group by k order by k",
            &["'name 1', 'name 2', 'x', ''", "'a', 'b', 'c', 'd'", "'name 12', 'name 0', 'name 3', 'name 4'"],
        ),
        (
            "select substr(s, 1, 2) as c, count(*) from w where substr(s, 1, 2) in (?) group by 1 order by 1",
            &["'w1', 'w2', 'w3', 'w4'", "'w5', 'w6', 'w7', 'x'", "'w9', 'w2', 'w8', ''"],
        ),
        (
            "select id from t where a > (select avg(a) from t where k in (?)) and k in (?) order by id",
            &["1, 2, 3, 4", "0, 5, 6, 9", "5, 1, 6, 2"],
        ),
        (
            "select k, sum(case when s = ? then d else 0 end) / sum(d) as share from t group by k order by k",
            &["'name 1'", "'name 2'", "'none'", "'name 12'"],
        ),
        (
            "select k, count(*) filter (where a > ?) as n, sum(a) as total from t where d < 2000 group by k having              count(*) filter (where a > ?) > 1 order by n desc, k limit 5",
            &["50", "99", "20", "70"],
        ),
        (
            "select sum(case when s like ? then a else 0 end) as matching, count(*) as n from t where d > 50",
            &["'name 1%'", "'%2'", "'n_me 3'", "'x%'"],
        ),
        (
            "select max(n) from (select k, sum(case when a in (?) then 1 else 0 end) as n from t group by k) as by_k",
            &["1, 2, 3, 4", "9, 8, 7, 6", "0, 100, 200, -1", "5, 55, 50, 54"],
        ),
        (
            "select u.y, sum(case when t.a < ? then 1 else 0 end) as few from t join u on t.k = u.k group by u.y order by 2, 1",
            &["5", "50", "100", "0"],
        ),
        (
            "select sum(case when a = ? then d end) as x, avg(case when a = ? then d end) as y from t where k < 5",
            &["1", "50", "99", "100"],
        ),
        ("select count(distinct case when a > ? then k end) as n from t", &["1", "50", "99", "100"]),
        // DataFusion takes the condition that both sides have out of the OR.
        (
            "select count(*) from t where (a >= ? and s like 'name 1%') or (a >= ? and d < 50) or (a >= ? and k = 3)",
            &["1", "50", "99", "30"],
        ),
        ("select count(*) from w where s like ?", &["'w1%'", "'%2'", "'w_3'", "'x%'", "'%99%'"]),
        ("select count(*), min(s) from w where s >= ?", &["'w1'", "'w5'", "''", "'w99999'", "'w60000'"]),
        ("select count(*) from w where s = ? or s = 'w5'", &["'w1'", "'w7'", "''", "'w99999'", "'w60000'"]),
        ("select count(*) from w where substr(s, 1, 2) = ?", &["'w1'", "'w7'", "''", "'w'", "'w60'"]),
        ("select count(*) from w where length(s) < ?", &["3", "4", "5", "9", "0"]),
        ("select count(*) from t where s like ?", &["'name 1%'", "'%2'", "'n_me 3'", "'x%'", "'%e 1_'"]),
        ("select count(*) from t where s in (?, 'name 3')", &["'name 1'", "'name 5'", "''", "'name 2'"]),
        ("select count(*) from t where a not in (?, 5)", &["1", "7", "1000", "6", "8"]),
        ("select count(*), sum(d) from t where a > ?", &["3", "50", "99", "-1", "100", "3"]),
        ("select sum(a) from t where ? <= d", &["3", "50.5", "2999.99", "-1", "0.01"]),
        ("select id from t where s = ?", &["'name 1'", "'name 2'", "'name 12'", "'none'", "''", "'%'"]),
        ("select count(*) from t where s > ? and s <> 'name 5'", &["'name 1'", "'name 2'", "'z'", "''"]),
        (
            "select s, count(*) from t where day between ? and date '1996-01-01' group by s",
            &["date '1994-06-01'", "'1994-12-31'", "date '1995-01-01' + interval '1 month'", "date '2000-01-01'"],
        ),
        (
            "select sum(d) from t where day >= ? and day < ? + interval '3 months'",
            &["date '1994-06-01'", "date '1994-12-31'", "date '1995-01-01'", "date '1900-01-01'"],
        ),
        (
            "select u.y, sum(a) from t join u on t.k = u.k where u.y > ? group by u.y order by 1",
            &["1", "3", "9", "17", "18", "0"],
        ),
        (
            "select t.id from t left join u on t.k = u.k and u.y > ? where t.id < 40 and u.y is null",
            &["1", "3", "9", "18", "-5"],
        ),
        (
            "select count(*) from t where exists (select 1 from u where u.k = t.k and u.y > ?)",
            &["1", "3", "9", "18", "-5"],
        ),
        (
            "select id from t where a > (select avg(a) from t where d < ?) and d < 100 order by id",
            &["10", "50", "2999", "2.5", "7.25"],
        ),
        ("select k, sum(a) as total from t group by k having sum(a) > ? order by k", &["1", "20000", "21000", "90000"]),
        ("select sum(case when a > 50 then 1 end) from t where not (a = ? or k = ?)", &["1", "3", "5", "200"]),
        ("select id, rank() over (partition by k order by a, id) from t where id <= ?", &["1", "30", "50", "0"]),
        ("select id from t where a < ? order by d desc limit 5", &["10", "50", "2", "0", "1000"]),
    ];
    for (template, values) in templates {
        let found = with_values(&context, &stock, template, values).await;
        let distinct = values.iter().enumerate().filter(|(at, value)| !values[..*at].contains(value)).count();
        assert_eq!(found[..2], [false, false], "{template}");
        assert!(found[2..].iter().all(|&found| found), "{template}: {found:?}, {distinct} values");
        // Texts with their values are found as well.
        assert!(with_values(&context, &stock, template, values).await.into_iter().all(|found| found), "{template}");
    }
}

/// Values for which DataFusion would plan something else, or fail.
#[tokio::test]
async fn literals_that_lead_elsewhere() {
    let (context, stock) = (session().await, stock());
    tables(&stock, false).await;
    let templates: [(&str, &[&str]); 27] = [
        // Lists beside lists that stay literal: too long, with a null, and not of a filter.
        (
            "select a, id from t where a in (?) and a not in (100,101,102,103,104,105,106,107,108,109,110,111,112,113,114,115,\
             116,117,118,119,120,121,122,123,124,125,126,127,128,129,130,131,132,133,134,135,136,137,138,139,140,141,142,143,\
             144,145,146,147,148,149,150,151,152,153,154,155,156,157,158,159,160,161,162,163,164)",
            &["1, 2, 3, 4", "5, 6, 7, 8", "100, 99, 1, 2", "9, 10, 11, 12"],
        ),
        (
            "select a, id from t where a in (?) and a in (5, 6, 7, 8, null)",
            &["1, 2, 3, 4", "9, 10, 11, 12", "5, 6, 1, 2", "8, 7, 9, 10"],
        ),
        (
            "select a from (select a, a in (5, 6, 7, 8) as b from t) as x where a in (?) and b",
            &["1, 2, 3, 4", "9, 10, 11, 12", "5, 6, 1, 2", "8, 7, 9, 10"],
        ),
        (
            "select a from (select a, a = 5 or a = 6 as b from t) as x where a in (?) and b",
            &["1, 2, 3, 4", "9, 10, 11, 12", "5, 6, 1, 2", "8, 7, 9, 10"],
        ),
        ("select a from t where a in (?) and a in (5, 6, 7, 8)", &["1, 2", "3, 4", "5, 6", "8, 1"]),
        (
            "select a from t where a not in (?) or a not in (5, 6, 7, 8, null)",
            &["1, 2, 3, 4", "9, 10, 11, 12", "5, 6, 7, 8"],
        ),
        // DISTINCT ON above an aggregate.
        (
            "select distinct on (k) k, n from (select k, sum(case when a = ? then 1 else 0 end) as n from t group by k) as x \
             order by k, n",
            &["1", "2", "3", "4"],
        ),
        // The answer has the literal in its name.
        ("select k, sum(case when a = ? then 1 else 0 end) from t group by k order by k", &["1", "2", "3", "2"]),
        (
            "select * from (select k, sum(case when a = ? then 1 else 0 end) from t group by k) as x order by k",
            &["1", "2", "3"],
        ),
        ("select case when a > ? then 1 else 0 end as c, count(*) from t group by 1 order by 1", &["1", "50", "99"]),
        (
            "select id from t where a in (?) and id < 200",
            &["1, 2, 3, 4", "1, 1, 2, 2", "1, null, 2, 3", "'5', '6', '7', '8'"],
        ),
        (
            "select id from t where a in (?) and a in (5, 6, 7, 8) order by id",
            &["1, 2, 3, 4", "5, 6, 1, 2", "8, 7, 6, 5", "9, 1, 2, 3", "5, 1, 2, 3"],
        ),
        ("select id from t where a in (?) or a in (5, 6, 7, 8)", &["1, 2, 3, 4", "5, 6, 1, 2", "8, 7, 6, 5"]),
        ("select id from t where a not in (?) and id < 60", &["1, 2, 3, null", "5, 6, 1, 2", "null, null, null, null"]),
        (
            "select k, sum(case when a = ? then 1 else 0 end) as one, sum(case when a = 5 then 1 else 0 end) as five \
             from t group by k order by k",
            &["1", "5", "6", "5", "7"],
        ),
        (
            "select count(*) from t where a > ?",
            &["3", "4", "null", "5.5", "1e3", "'x'", "cast('7' as int)", "9223372036854775808"],
        ),
        ("select count(*) from t where d = ?", &["5", "5.0", "5.001", "5.00", "1e-3", "12345678901234567890.12"]),
        ("select id from t where s = ?", &["'name 1'", "'name 2'", "null", "5", "'name ' || '3'", "'it''s'"]),
        ("select id from t where s like ?", &["'name 1'", "'name 1%'", "'%1'", "'%'", "null", "'name _'"]),
        ("select id from t where a in (?) and id < 100", &["1", "1, 2", "2", "3, 4, 5", "null", "1, null"]),
        ("select id from t order by id limit ?", &["1", "2", "0", "3 offset 1"]),
        ("select id, a from t where id < 10 order by ?", &["1", "2, 1", "2 desc, 1", "1 desc"]),
        ("select k, ? from t group by 1 order by 1", &["1", "2", "'x'", "null"]),
        ("select id from t where day < ? and id < 50", &["'1994-02-01'", "date '1994-01-20'", "null", "'1994-03-01'"]),
        ("select count(*) from t where a > ? and a > 50", &["10", "20", "60", "50", "70"]),
        ("select count(*) from t where a = ? and a = 5", &["5", "6", "5", "7"]),
        ("select id from t where k = ? union all select k from u where k = 3 order by 1", &["3", "4", "3", "5", "3"]),
    ];
    for (template, values) in templates {
        for _ in 0..2 {
            for value in values {
                let sql = template.replace('?', value);
                let (ours, theirs) = (answer(context.query(&sql).await).await, answer(stock.query(&sql).await).await);
                assert_eq!(ours, theirs, "{sql}");
            }
        }
    }
}

/// The rows of a query, or `None` if it fails.
async fn answer(query: Result<Query>) -> Option<Vec<String>> {
    Some(rows(&query.ok()?.collect().await.ok()?))
}

#[tokio::test]
async fn prepared_statements_find_the_plan() {
    let (context, stock) = (session().await, stock());
    tables(&stock, false).await;
    let prepare = "prepare p(bigint, date) as select k, sum(d) from t where a > $1 and day < $2 group by k order by k";
    context.query(prepare).await.unwrap();
    let mut found = vec![];
    for (value, day) in
        [(5, "1995-01-01"), (50, "1995-02-01"), (70, "1994-02-01"), (99, "1999-01-01"), (5, "1995-01-01")]
    {
        let query = context.query(&format!("execute p({value}, date '{day}')")).await.unwrap();
        found.push(query.is_kept());
        let sql = format!("select k, sum(d) from t where a > {value} and day < date '{day}' group by k order by k");
        assert_eq!(rows(&query.collect().await.unwrap()), rows(&run(&stock, &sql).await), "{sql}");
    }
    assert_eq!(found, [false, false, true, true, true]);
}

/// Queries with different values at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn values_do_not_mix() {
    let (context, stock) = (session().await, stock());
    tables(&stock, false).await;
    let text = |value: i32| format!("select k, count(*), sum(d) from t where a > {value} and s <> 'name 3' group by k");
    let mut expected = vec![];
    for value in 0..24 {
        expected.push(rows(&run(&stock, &text(value * 4)).await));
    }
    let mut running = tokio::task::JoinSet::new();
    for value in 0..24 {
        let (context, expected) = (context.clone(), expected[value as usize].clone());
        running.spawn(async move {
            for _ in 0..3 {
                let answer = context.query(&text(value * 4)).await.unwrap().collect().await.unwrap();
                assert_eq!(rows(&answer), expected, "{}", text(value * 4));
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}
