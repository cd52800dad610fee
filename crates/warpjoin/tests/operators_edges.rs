//! The operators at their edges, on simulated devices: see `common::edges`.

mod common;

use common::edges;
use common::sessions::simulated;

#[test]
fn edges_equal_the_oracle() {
    edges::check(&simulated(), &edges::all(false), &edges::settings());
}
