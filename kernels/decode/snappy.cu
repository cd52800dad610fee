// Decompresses pages of Parquet columns.
//
// decompress_snappy: the first WJ_PAGE_RAW_BYTES of a page are not compressed.
// Grid: a page a block, grid stride. Shared: Elements, WJ_ELEMENTS_BYTES.
#include "decode/elements.cuh"
#include "decode/params.cuh"  // src/decode.rs

WJ_DEVICE Element snappy_element(u64 bytes) {
    const u32 tag = (u32)bytes & 0xff, argument = (u32)(bytes >> 8);
    if ((tag & 3) == 0) {
        const u32 more = tag >> 2 < 60 ? 0 : (tag >> 2) - 59;
        const u32 length = more == 0 ? tag >> 2 : argument & (0xffffffffu >> (32 - more * 8));
        // One of 2^32 bytes is longer than any page.
        return {length + (length != 0xffffffffu), 1 + more, 0, true};
    }
    if ((tag & 3) == 1) return {((tag >> 2) & 7) + 4, 2, (tag >> 5) << 8 | (argument & 0xff), false};
    if ((tag & 3) == 2) return {(tag >> 2) + 1, 3, argument & 0xffff, false};
    // Bytes further back than 2^30 are not there.
    return {(tag >> 2) + 1, 5, argument < WJ_BEFORE ? argument : 0, false};
}

// Columns have a few pages for each multiprocessor.
WJ_ENTRY_RESIDENT(decompress_snappy, DecompressParams, WJ_DECODE_THREADS, 5) {
    Elements& shared = shared_as<Elements>();
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const u64* page = p.pages + number * WJ_PAGE_WORDS;
        const u64 source_bytes = page[WJ_PAGE_SOURCE_BYTES], length = page[WJ_PAGE_BYTES], raw = page[WJ_PAGE_RAW_BYTES];
        const u8* source = p.source + page[WJ_PAGE_SOURCE_AT];
        u8* target = p.target + page[WJ_PAGE_AT];
        copy_bytes(target, source, raw);
        bool is_right = raw == length && raw == source_bytes;
        if (!is_right) {
            const u64 compressed = source_bytes - raw, plain = length - raw;
            u64 at = 0;
            u32 declared;
            is_right = read_varint(source + raw, compressed, at, declared) && declared == plain
                && decompress_elements(shared, target + raw, plain, source + raw, compressed, at, snappy_element);
        }
        if (!is_right && threadIdx.x == 0) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}
