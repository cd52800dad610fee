//! Host memory for large copies.

/// Bytes of a huge page, on most systems.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the system to use huge pages for memory that was not touched yet. Otherwise the first touch, 4 KiB at a time,
/// takes longer than a copy from a GPU. Without effect if the system has no huge pages.
pub fn take_huge_pages<T>(memory: &mut [T]) {
    let range = memory.as_mut_ptr_range();
    let begin = (range.start as usize).next_multiple_of(HUGE_PAGE_BYTES);
    let end = range.end as usize / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if cfg!(target_os = "linux") && begin < end {
        // SAFETY: whole pages of memory that the caller has; the advice changes no content.
        unsafe { libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_as_it_is() {
        for bytes in [0, 1, HUGE_PAGE_BYTES, 5 * HUGE_PAGE_BYTES + 3] {
            let mut memory = vec![0_u8; bytes];
            take_huge_pages(&mut memory);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            take_huge_pages(&mut memory);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }
}
