//! Tables on one of several devices, and queries that run there.

use warpjoin_datafusion::Distribute;

use super::*;
use crate::common::load_tpch;

/// Labels of the devices that each part ran on.
fn devices(placement: &Placement) -> Vec<Vec<String>> {
    placement.device.iter().map(|part| part.metrics.as_ref().unwrap().devices.clone()).collect()
}

fn used_bytes(context: &SessionContext) -> Vec<u64> {
    session_of(context).unwrap().devices().iter().map(|device| device.memory().used_bytes()).collect()
}

async fn set(context: &SessionContext, value: &str) {
    context.sql(&format!("SET warpjoin.distribute = '{value}'")).await.unwrap().collect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_run_where_all_their_tables_lie() {
    let expected = expected();
    let context = warp(3, |options| options.distribute = Distribute::One);
    register_tpch(&context, SCALE);
    load_tpch(&context).await;
    for (_, sql, ..) in QUERIES {
        let plan = shown(&physical(&context, sql).await);
        assert!(plan.contains("devices=[sim:0]"), "{plan}");
        // The second time by a kept plan.
        for _ in 0..2 {
            let placement = assert_same(&expected, &context, sql).await;
            assert_on_devices(&placement, sql);
            assert!(devices(&placement).iter().all(|of| of == &["sim:0"]), "{sql}: {:?}", devices(&placement));
        }
    }
    assert!(used_bytes(&context)[0] > 0);
    assert_eq!(used_bytes(&context)[1..], [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_go_where_the_tables_lie() {
    let expected = expected();
    let context = warp(2, |options| options.distribute = Distribute::One);
    register_tpch(&context, SCALE);
    load_table(&context, "orders").await.unwrap();
    for (_, sql, ..) in QUERIES {
        let placement = assert_same(&expected, &context, sql).await;
        assert_on_devices(&placement, sql);
        assert!(devices(&placement).iter().all(|of| of == &["sim:0"]), "{sql}: {:?}", devices(&placement));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_on_one_device_are_joined_with_tables_on_all() {
    let expected = expected();
    let context = warp(3, |_| {});
    register_tpch(&context, SCALE);
    for (number, table) in ["lineitem", "orders", "customer", "part", "supplier"].into_iter().enumerate() {
        set(&context, ["all", "one"][number % 2]).await;
        load_table(&context, table).await.unwrap();
    }
    let mut seen = vec![];
    for (_, sql, ..) in QUERIES {
        for _ in 0..2 {
            let placement = assert_same(&expected, &context, sql).await;
            assert_on_devices(&placement, sql);
            seen.extend(devices(&placement).into_iter().map(|of| of.len()));
        }
    }
    assert!(seen.contains(&3), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_devices_have_parts_of_all_tables_by_default() {
    let context = warp(2, |_| {});
    let shown = context.sql("SHOW warpjoin.distribute").await.unwrap().collect().await.unwrap();
    assert!(rows(&shown, false)[0].contains("auto"), "{:?}", rows(&shown, false));
    register_tpch(&context, SCALE);
    load_table(&context, "lineitem").await.unwrap();
    assert!(used_bytes(&context).iter().all(|&bytes| bytes > 0));
    let error = context.sql("SET warpjoin.distribute = 'two'").await.unwrap_err();
    assert!(error.to_string().contains("takes auto, one, all, not 'two'"), "{error}");
}
