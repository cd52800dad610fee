// What a kernel library of the simulated device and the fibre scheduler agree on. Included by
// both; a change here changes the key of every cached library.
#pragma once

// Each lane runs on a stack of this size, aligned to it, so that the stack pointer alone tells
// which lane is running: no thread-local storage, and right on whichever OS thread it continues.
#define WJ_SIM_STACK_SHIFT 17
#define WJ_SIM_STACK_BYTES (1ul << WJ_SIM_STACK_SHIFT)
// A yield point so close to the end of the stack means that the kernel needs too much of it.
#define WJ_SIM_STACK_RESERVE_BYTES 16384ul
// Stacks aligned alike would meet in the same cache sets: each starts at a colour of its own.
#define WJ_SIM_COLOURS 64ul
#define WJ_SIM_COLOUR_BYTES 320ul
#define WJ_SIM_LANE_BYTES 64ul

struct WjIndex {
    unsigned x;
};

// The state of the running lane that kernels see; it lies at the upper end of the lane's stack.
struct WjLane {
    WjIndex thread_index;
    WjIndex block_index;
    WjIndex block_dim;
    WjIndex grid_dim;
    // Reaches 0 at the yield point that really yields.
    int yield_in;
    // The same for plain accesses, in kernels compiled to yield there.
    int plain_in;
    // Resident block (upper bits) and thread in it (lower 10 bits).
    unsigned id;
    void* shared;
    void* worker;
    void* fake_stack;
};
static_assert(sizeof(WjLane) <= WJ_SIM_LANE_BYTES, "the lane's state has its own cache line");

enum WjWarpOp : unsigned {
    WJ_SYNC,
    WJ_BALLOT,
    WJ_ANY,
    WJ_ALL,
    WJ_SHUFFLE,
    WJ_MATCH_ANY,
    WJ_MATCH_ALL,
    WJ_ADD,
    WJ_MIN_U32,
    WJ_MAX_U32,
    WJ_MIN_I32,
    WJ_MAX_I32,
    WJ_AND,
    WJ_OR,
    WJ_XOR,
};

// Whom an atomic or a fence is for.
enum WjScope : unsigned { WJ_BLOCK_SCOPE, WJ_DEVICE_SCOPE, WJ_SYSTEM_SCOPE, WJ_SCOPES };

// Atomic accesses, as the race detector sees them. WJ_OBSERVE: a compare-and-swap that does not store.
enum WjAtomic : unsigned { WJ_LOAD, WJ_OBSERVE, WJ_STORE, WJ_READ_MODIFY_WRITE };

// Flags of an access; an atomic one's scope lies above them.
#define WJ_ACCESS_WRITE 1u
#define WJ_ACCESS_ATOMIC 2u
#define WJ_ACCESS_SCOPE 4u

enum WjBlockOp : unsigned { WJ_BARRIER, WJ_BARRIER_COUNT, WJ_BARRIER_OR, WJ_BARRIER_AND };

// The scheduler's functions, given to each library by wj_sim_bind.
struct WjRuntime {
    // Lets other lanes run.
    void (*yield)(WjLane* lane);
    // The same, at a plain access.
    void (*yield_plain)(WjLane* lane);
    // Waits for exactly the lanes of `mask`, and gives this lane's result.
    unsigned long long (*warp)(WjLane* lane, WjWarpOp op, unsigned mask, unsigned long long value,
                               unsigned source, int line);
    // Waits for all threads of the block.
    unsigned (*block)(WjLane* lane, WjBlockOp op, unsigned predicate, int line);
    // Ends the kernel with an error; does not return.
    void (*fail)(WjLane* lane, const char* reason, int line);
    // Kernels compiled to find races call these just before an access, with the address of its code.
    void (*access)(WjLane* lane, const void* address, unsigned bytes, unsigned flags, const void* pc);
    // True: a WJ_LOAD gives `*stale` rather than what memory holds.
    bool (*atomic)(WjLane* lane, const void* address, unsigned bytes, WjAtomic kind, WjScope scope, const void* pc,
                   unsigned long long* stale);
    void (*fence)(WjLane* lane, WjScope scope);
};

// What a library tells about an entry, under the entry's name with `_wj_info` appended.
struct WjEntryInfo {
    unsigned threads_max;
    unsigned param_bytes;
};

typedef void (*WjEntry)(const void* params);

// One launch, shared by the workers that execute its blocks.
struct WjSimLaunch {
    WjEntry entry;
    const void* params;
    unsigned blocks;
    unsigned block_threads;
    unsigned shared_bytes;
    // Blocks that one worker keeps in flight.
    unsigned resident_blocks;
    unsigned long long seed;
    // 1: the next lane is drawn at random at every yield point. 0: first come, first served, and
    // only some yield points yield.
    unsigned explore;
    // Set by the first worker that fails; the others then take no further block.
    unsigned failed;
    // Blocks taken so far.
    unsigned long long taken;
    // Of `params`.
    unsigned param_bytes;
    // The launch in the race detector, which is null when nobody looks for races.
    unsigned operation;
    void* races;
};

// One of the two accesses of a race. `pc` is 0 for the host's.
struct WjRaceSide {
    unsigned operation, block, thread, pc, flags;
};
struct WjRace {
    WjRaceSide sides[2];
};
