// Plain loads and stores: the compiler instruments them for ThreadSanitizer, and these functions take
// the place of its library. They are yield points, or tell the race detector (with WJ_SIM_RACES).
#pragma once

#define WJ_SIM_HOOK extern "C" __attribute__((visibility("hidden"), no_sanitize("thread")))

// Inlined into a hook, whose return address is that of the access.
static inline __attribute__((always_inline)) void wj_sim_plain_access(const void* address, unsigned bytes, unsigned flags) {
    WjLane& lane = wj_sim_lane();
    // A lane's own stack is its own matter.
    unsigned long distance = reinterpret_cast<unsigned long>(address) ^ reinterpret_cast<unsigned long>(&lane);
    if (distance < WJ_SIM_STACK_BYTES) return;
#if defined(WJ_SIM_RACES)
    wj_sim_runtime->access(&lane, address, bytes, flags, __builtin_return_address(0));
#else
    if (--lane.plain_in <= 0) wj_sim_runtime->yield_plain(&lane);
#endif
}

#if defined(WJ_SIM_RACES)
// The file's first header of an ELF image lies where it was loaded: line numbers are told by offsets.
extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) const void* wj_sim_base() { return __ehdr_start; }
#endif

WJ_SIM_HOOK void __tsan_init() {}
WJ_SIM_HOOK void __tsan_func_entry(void*) {}
WJ_SIM_HOOK void __tsan_func_exit() {}
WJ_SIM_HOOK void __tsan_read1(void* a) { wj_sim_plain_access(a, 1, 0); }
WJ_SIM_HOOK void __tsan_read2(void* a) { wj_sim_plain_access(a, 2, 0); }
WJ_SIM_HOOK void __tsan_read4(void* a) { wj_sim_plain_access(a, 4, 0); }
WJ_SIM_HOOK void __tsan_read8(void* a) { wj_sim_plain_access(a, 8, 0); }
WJ_SIM_HOOK void __tsan_read16(void* a) { wj_sim_plain_access(a, 16, 0); }
WJ_SIM_HOOK void __tsan_write1(void* a) { wj_sim_plain_access(a, 1, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_write2(void* a) { wj_sim_plain_access(a, 2, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_write4(void* a) { wj_sim_plain_access(a, 4, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_write8(void* a) { wj_sim_plain_access(a, 8, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_write16(void* a) { wj_sim_plain_access(a, 16, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_unaligned_read2(void* a) { wj_sim_plain_access(a, 2, 0); }
WJ_SIM_HOOK void __tsan_unaligned_read4(void* a) { wj_sim_plain_access(a, 4, 0); }
WJ_SIM_HOOK void __tsan_unaligned_read8(void* a) { wj_sim_plain_access(a, 8, 0); }
WJ_SIM_HOOK void __tsan_unaligned_read16(void* a) { wj_sim_plain_access(a, 16, 0); }
WJ_SIM_HOOK void __tsan_unaligned_write2(void* a) { wj_sim_plain_access(a, 2, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_unaligned_write4(void* a) { wj_sim_plain_access(a, 4, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_unaligned_write8(void* a) { wj_sim_plain_access(a, 8, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_unaligned_write16(void* a) { wj_sim_plain_access(a, 16, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_read_range(void* a, unsigned long n) { wj_sim_plain_access(a, (unsigned)n, 0); }
WJ_SIM_HOOK void __tsan_write_range(void* a, unsigned long n) { wj_sim_plain_access(a, (unsigned)n, WJ_ACCESS_WRITE); }
WJ_SIM_HOOK void __tsan_vptr_read(void* a) { wj_sim_plain_access(a, 8, 0); }
WJ_SIM_HOOK void __tsan_vptr_update(void* a, void*) { wj_sim_plain_access(a, 8, WJ_ACCESS_WRITE); }
