// CUDA's vector types, with CUDA's alignment.
#pragma once

struct __align__(8) int2 { int x, y; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(16) longlong2 { long long x, y; };
struct __align__(16) ulonglong2 { unsigned long long x, y; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) double2 { double x, y; };

WJ_SIM_INLINE int2 make_int2(int x, int y) { return {x, y}; }
WJ_SIM_INLINE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
WJ_SIM_INLINE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
WJ_SIM_INLINE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
WJ_SIM_INLINE longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
WJ_SIM_INLINE ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
WJ_SIM_INLINE float2 make_float2(float x, float y) { return {x, y}; }
WJ_SIM_INLINE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
WJ_SIM_INLINE double2 make_double2(double x, double y) { return {x, y}; }
