// CUDA's bit and arithmetic functions.
#pragma once

WJ_SIM_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
WJ_SIM_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
WJ_SIM_INLINE int __ffs(int x) { return __builtin_ffs(x); }
WJ_SIM_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
WJ_SIM_INLINE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
WJ_SIM_INLINE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
WJ_SIM_INLINE unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
WJ_SIM_INLINE int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
WJ_SIM_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
WJ_SIM_INLINE long long __mul64hi(long long x, long long y) {
    return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
// The four bytes that `selector` picks, one in each of its nibbles, out of the eight of y:x.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned pick = selector >> (4 * i) & 15, byte = static_cast<unsigned>(bytes >> (8 * (pick & 7))) & 255;
        if (pick & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}
WJ_SIM_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
WJ_SIM_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}

// Cache hints: plain accesses here.
template <class T> WJ_SIM_INLINE T __ldg(const T* address) { return *address; }
template <class T> WJ_SIM_INLINE T __ldca(const T* address) { return *address; }
template <class T> WJ_SIM_INLINE T __ldcg(const T* address) { return *address; }
template <class T> WJ_SIM_INLINE T __ldcs(const T* address) { return *address; }
template <class T> WJ_SIM_INLINE void __stcg(T* address, T value) { *address = value; }
template <class T> WJ_SIM_INLINE void __stcs(T* address, T value) { *address = value; }

template <class To, class From>
WJ_SIM_INLINE To wj_sim_bit_cast(From from) {
    To to;
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
WJ_SIM_INLINE double __longlong_as_double(long long x) { return wj_sim_bit_cast<double>(x); }
WJ_SIM_INLINE long long __double_as_longlong(double x) { return wj_sim_bit_cast<long long>(x); }
WJ_SIM_INLINE float __uint_as_float(unsigned x) { return wj_sim_bit_cast<float>(x); }
WJ_SIM_INLINE unsigned __float_as_uint(float x) { return wj_sim_bit_cast<unsigned>(x); }
WJ_SIM_INLINE float __int_as_float(int x) { return wj_sim_bit_cast<float>(x); }
WJ_SIM_INLINE int __float_as_int(float x) { return wj_sim_bit_cast<int>(x); }

#define WJ_SIM_MIN_MAX(A, B, R)                                                                       \
    WJ_SIM_INLINE R min(A x, B y) { return static_cast<R>(y) < static_cast<R>(x) ? static_cast<R>(y) : static_cast<R>(x); } \
    WJ_SIM_INLINE R max(A x, B y) { return static_cast<R>(x) < static_cast<R>(y) ? static_cast<R>(y) : static_cast<R>(x); }
WJ_SIM_MIN_MAX(int, int, int)
WJ_SIM_MIN_MAX(unsigned, unsigned, unsigned)
WJ_SIM_MIN_MAX(int, unsigned, unsigned)
WJ_SIM_MIN_MAX(unsigned, int, unsigned)
WJ_SIM_MIN_MAX(long, long, long)
WJ_SIM_MIN_MAX(unsigned long, unsigned long, unsigned long)
WJ_SIM_MIN_MAX(long long, long long, long long)
WJ_SIM_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
WJ_SIM_MIN_MAX(long long, unsigned long long, unsigned long long)
WJ_SIM_MIN_MAX(unsigned long long, long long, unsigned long long)
// Of a number and a NaN, the number.
WJ_SIM_INLINE float min(float x, float y) { return __builtin_fminf(x, y); }
WJ_SIM_INLINE float max(float x, float y) { return __builtin_fmaxf(x, y); }
WJ_SIM_INLINE double min(double x, double y) { return __builtin_fmin(x, y); }
WJ_SIM_INLINE double max(double x, double y) { return __builtin_fmax(x, y); }

WJ_SIM_INLINE bool isnan(double x) { return __builtin_isnan(x); }
WJ_SIM_INLINE bool isnan(float x) { return __builtin_isnan(x); }
WJ_SIM_INLINE bool isinf(double x) { return __builtin_isinf(x); }
WJ_SIM_INLINE bool isinf(float x) { return __builtin_isinf(x); }
WJ_SIM_INLINE bool isfinite(double x) { return __builtin_isfinite(x); }
WJ_SIM_INLINE bool isfinite(float x) { return __builtin_isfinite(x); }
WJ_SIM_INLINE bool signbit(double x) { return __builtin_signbit(x); }
WJ_SIM_INLINE bool signbit(float x) { return __builtin_signbitf(x); }
WJ_SIM_INLINE int abs(int x) { return x < 0 ? -x : x; }
WJ_SIM_INLINE long long llabs(long long x) { return x < 0 ? -x : x; }

WJ_SIM_INLINE double fabs(double x) { return __builtin_fabs(x); }
WJ_SIM_INLINE double floor(double x) { return __builtin_floor(x); }
WJ_SIM_INLINE double ceil(double x) { return __builtin_ceil(x); }
WJ_SIM_INLINE double trunc(double x) { return __builtin_trunc(x); }
WJ_SIM_INLINE double round(double x) { return __builtin_round(x); }
WJ_SIM_INLINE double rint(double x) { return __builtin_rint(x); }
WJ_SIM_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
WJ_SIM_INLINE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
WJ_SIM_INLINE double fmod(double x, double y) { return __builtin_fmod(x, y); }
WJ_SIM_INLINE double fmin(double x, double y) { return __builtin_fmin(x, y); }
WJ_SIM_INLINE double fmax(double x, double y) { return __builtin_fmax(x, y); }
WJ_SIM_INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
WJ_SIM_INLINE double exp(double x) { return __builtin_exp(x); }
WJ_SIM_INLINE double log(double x) { return __builtin_log(x); }
WJ_SIM_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }
WJ_SIM_INLINE float fabsf(float x) { return __builtin_fabsf(x); }
WJ_SIM_INLINE float floorf(float x) { return __builtin_floorf(x); }
WJ_SIM_INLINE float ceilf(float x) { return __builtin_ceilf(x); }
WJ_SIM_INLINE float truncf(float x) { return __builtin_truncf(x); }
WJ_SIM_INLINE float roundf(float x) { return __builtin_roundf(x); }
WJ_SIM_INLINE float sqrtf(float x) { return __builtin_sqrtf(x); }
WJ_SIM_INLINE float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
