// Chains of one operation on registers: each thread loads and stores once, and repeats the operation
// on four independent values, which hides its latency.

typedef unsigned long long u64;

// y <- y * a + b, `repeats` times.
extern "C" __global__ void fma_chain(const float4* x, float4* y, u64 count, unsigned int repeats,
                                     float a, float b) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    float4 v = x[i];
#pragma unroll 32
    for (unsigned int k = 0; k < repeats; ++k) {
        v.x = fmaf(v.x, a, b);
        v.y = fmaf(v.y, a, b);
        v.z = fmaf(v.z, a, b);
        v.w = fmaf(v.w, a, b);
    }
    y[i] = v;
}

#define CHAIN(name, expression)                                                                  \
    __device__ static float name##_once(float v) { return expression; }                          \
    extern "C" __global__ void name(const float4* x, float4* y, u64 count,                    \
                                    unsigned int repeats) {                                  \
        const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;                                \
        if (i >= count) return;                                                                  \
        float4 v = x[i];                                                                         \
        _Pragma("unroll 4") for (unsigned int k = 0; k < repeats; ++k) {                         \
            v.x = name##_once(v.x);                                                              \
            v.y = name##_once(v.y);                                                              \
            v.z = name##_once(v.z);                                                              \
            v.w = name##_once(v.w);                                                              \
        }                                                                                        \
        y[i] = v;                                                                                \
    }

// exp(-v) leads to 0.567 from anywhere, and sin(v + pi/2 - 1) to 1: errors shrink on the way.
#define SHIFT 0.5707963f
CHAIN(sin_chain, sinf(v + SHIFT))
CHAIN(exp_chain, expf(-v))
CHAIN(sin_fast_chain, __sinf(v + SHIFT))
CHAIN(exp_fast_chain, __expf(-v))
