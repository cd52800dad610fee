//! Decompression on the host of Parquet pages that devices decode.

use std::io::Read;

use flate2::read::MultiGzDecoder;

pub(super) fn zstd(page: &[u8], target: &mut [u8]) -> Result<(), String> {
    let decompressed = zstd::bulk::decompress_to_buffer(page, target);
    check("zstd", decompressed.map_err(|error| error.to_string()), target)
}

pub(super) fn lz4(page: &[u8], target: &mut [u8]) -> Result<(), String> {
    let decompressed = lz4_flex::block::decompress_into(page, target);
    check("lz4", decompressed.map_err(|error| error.to_string()), target)
}

pub(super) fn gzip(page: &[u8], target: &mut [u8]) -> Result<(), String> {
    let mut decoder = MultiGzDecoder::new(page);
    let decompressed = decoder.read_exact(target).and_then(|()| decoder.read(&mut [0]));
    check("gzip", decompressed.map(|more| target.len() + more).map_err(|error| error.to_string()), target)
}

fn check(codec: &str, decompressed: Result<usize, String>, target: &[u8]) -> Result<(), String> {
    match decompressed {
        Ok(bytes) if bytes == target.len() => Ok(()),
        Ok(bytes) => Err(format!("{codec}: a page of {bytes} bytes, not {}", target.len())),
        Err(error) => Err(format!("{codec}: {error}")),
    }
}
