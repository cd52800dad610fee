//! What the slots of a hash table hold, how large its buckets are, and how many lanes probe one.

use warpjoin_codegen::{BucketShape, SlotForm};
use warpjoin_columns::{Error, Result};

use super::layout::RowLayout;

/// The narrowest slots for rows; those of a multimap hold only keys.
pub(super) fn slot_form(layout: &RowLayout, is_multimap: bool) -> SlotForm {
    let key_bytes = layout.word_bytes[0];
    match (layout.key_words, if is_multimap { 0 } else { layout.value_words() }) {
        (1, 0) => SlotForm { key_bytes, value_bytes: 0 },
        (1, 1) if key_bytes == 4 && layout.word_bytes[1] == 4 => SlotForm { key_bytes: 4, value_bytes: 4 },
        (1, 1) => SlotForm { key_bytes: 8, value_bytes: 8 },
        _ => SlotForm::ROW_NUMBERS,
    }
}

/// Smallest and largest bucket.
const BUCKET_BYTES: (u32, u32) = (16, 1024);
/// A lane reads this much of a bucket at least.
const LANE_BYTES: u32 = 8;

/// The requested shape if it is possible, else that of the cost model.
pub(super) fn bucket_shape(
    form: SlotForm,
    bucket_bytes: Option<u32>,
    lanes: Option<u32>,
    load_factor: f64,
    is_cached: bool,
) -> Result<BucketShape> {
    let model = shape_by_cost(form, load_factor, is_cached);
    let bytes =
        bucket_bytes.unwrap_or(model.bytes.max(lanes.unwrap_or(1).saturating_mul(LANE_BYTES.max(form.slot_bytes()))));
    let lanes = lanes.unwrap_or_else(|| model.lanes.min((bytes / LANE_BYTES.max(form.slot_bytes())).max(1)));
    let slots = bytes / form.slot_bytes();
    let is_possible = bytes.is_power_of_two()
        && (BUCKET_BYTES.0..=BUCKET_BYTES.1).contains(&bytes)
        && lanes.is_power_of_two()
        && lanes <= 32
        && lanes * LANE_BYTES <= bytes
        && lanes <= slots;
    if is_possible {
        return Ok(BucketShape { bytes, lanes, streams: model.streams });
    }
    Err(Error::InvalidArgument(format!(
        "buckets of {bytes} bytes for {lanes} lanes: take powers of two, buckets of {} to {} bytes and at least \
         {LANE_BYTES} bytes and one slot ({} bytes here) a lane",
        BUCKET_BYTES.0,
        BUCKET_BYTES.1,
        form.slot_bytes()
    )))
}

/// The cost model's shape, within 5% of the best shape measured by the benches. In device memory a 64-byte access
/// costs as much as 8 bytes; in L2 every further sector costs, but less than a second probe step.
fn shape_by_cost(form: SlotForm, load_factor: f64, is_cached: bool) -> BucketShape {
    let streams = !is_cached;
    match (is_cached, load_factor > 0.7) {
        (true, false) if form.slot_bytes() <= 8 => BucketShape { bytes: 32, lanes: 1, streams },
        (true, false) => BucketShape { bytes: 64, lanes: 4, streams },
        // Of buckets of four slots every fifth key finds its own full.
        _ if form.slot_bytes() > 8 && load_factor > 0.91 => BucketShape { bytes: 128, lanes: 4, streams },
        _ => BucketShape { bytes: 64, lanes: 2, streams },
    }
}
