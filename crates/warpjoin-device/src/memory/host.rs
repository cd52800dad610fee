//! The size of host memory.

/// Files in which the system reports its memory, and how much of it this process may use.
const MEMORY_FILE: &str = "/proc/meminfo";
const LIMIT_FILES: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
/// Assumed memory if the system does not report it.
const UNKNOWN_BYTES: u64 = 8 << 30;

/// The host's memory that this process may use, in bytes.
pub fn usable_host_bytes() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let total = read(MEMORY_FILE).and_then(|text| total_bytes(&text));
    let limit = LIMIT_FILES.iter().filter_map(|path| read(path)?.trim().parse().ok()).min();
    [total, limit].into_iter().flatten().min().unwrap_or(UNKNOWN_BYTES)
}

/// The line `MemTotal:  131924372 kB`.
fn total_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_how_much_there_is() {
        assert_eq!(total_bytes("MemFree: 1 kB\nMemTotal:       131924372 kB\n"), Some(131_924_372 << 10));
        assert_eq!(total_bytes("MemTotal: many"), None);
        assert!(usable_host_bytes() > 1 << 20);
    }
}
