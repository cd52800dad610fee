// Yield points at plain loads and stores: the compiler instruments them for ThreadSanitizer, and
// these functions take the place of its library.
#pragma once

#define WJ_SIM_HOOK extern "C" __attribute__((visibility("hidden"), no_sanitize("thread")))

static inline __attribute__((always_inline)) void wj_sim_plain_access(const void* address) {
    WjLane& lane = wj_sim_lane();
    // A lane's own stack is its own matter.
    unsigned long distance = reinterpret_cast<unsigned long>(address) ^ reinterpret_cast<unsigned long>(&lane);
    if (distance < WJ_SIM_STACK_BYTES) return;
    if (--lane.plain_in <= 0) wj_sim_runtime->yield_plain(&lane);
}

WJ_SIM_HOOK void __tsan_init() {}
WJ_SIM_HOOK void __tsan_func_entry(void*) {}
WJ_SIM_HOOK void __tsan_func_exit() {}
WJ_SIM_HOOK void __tsan_read1(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_read2(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_read4(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_read8(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_read16(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_write1(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_write2(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_write4(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_write8(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_write16(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_read2(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_read4(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_read8(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_read16(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_write2(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_write4(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_write8(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_unaligned_write16(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_read_range(void* a, unsigned long) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_write_range(void* a, unsigned long) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_vptr_read(void* a) { wj_sim_plain_access(a); }
WJ_SIM_HOOK void __tsan_vptr_update(void* a, void*) { wj_sim_plain_access(a); }
