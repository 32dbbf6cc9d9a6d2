// C = A B, row-major, A (m, k), B (k, n): a naive kernel, and one with tiles in shared memory. Both sum
// in fp32 for every dtype of A, B and C.

typedef unsigned long long u64;

struct bf16 {
    unsigned short bits;
};
struct fp16 {
    unsigned short bits;
};

__device__ static float decode(float v) { return v; }
__device__ static float decode(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
__device__ static float decode(fp16 v) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
    return f;
}

__device__ static void encode(float v, float* to) { *to = v; }
// bf16 is the upper half of fp32, rounded to nearest, ties to even. NaN must not round to infinity.
__device__ static void encode(float v, bf16* to) {
    const unsigned bits = __float_as_uint(v);
    to->bits = v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
__device__ static void encode(float v, fp16* to) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(v));
}

// Each thread computes an element of C. A warp shares one element of A and reads 32 of a row of B.
template <class T>
__device__ void naive(const T* a, const T* b, T* c, u64 m, u64 n, u64 k) {
    const u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= m * n) return;
    const u64 i = at / n, j = at % n;
    float sum = 0;
    for (u64 l = 0; l < k; ++l) sum += decode(a[i * k + l]) * decode(b[l * n + j]);
    encode(sum, c + at);
}

// A block of 512 threads computes a tile of 64 x 64 of C, 16 of k at a time. Each thread computes a
// column of eight: an element of B from shared memory serves eight products, eight of A are two loads.
template <class T>
__device__ void tiled(const T* a, const T* b, T* c, u64 m, u64 n, u64 k) {
    constexpr int TILE = 64, STEP = 16, COLUMN = 8;
    __shared__ __align__(16) float left[STEP][TILE + 4];  // transposed, padded by 4 against bank conflicts
    __shared__ float right[STEP][TILE];
    const u64 columns = (n + TILE - 1) / TILE;
    const u64 row = blockIdx.x / columns * TILE, column = blockIdx.x % columns * TILE;
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    float sums[COLUMN] = {};
    for (u64 start = 0; start < k; start += STEP) {
        for (int at = threadIdx.x; at < TILE * STEP; at += TILE * TILE / COLUMN) {
            const u64 i = row + at / STEP, l = start + at % STEP;
            left[at % STEP][at / STEP] = i < m && l < k ? decode(a[i * k + l]) : 0;
            const u64 r = start + at / TILE, j = column + at % TILE;
            right[at / TILE][at % TILE] = r < k && j < n ? decode(b[r * n + j]) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < STEP; ++l) {
            const float factor = right[l][x];
#pragma unroll
            for (int i = 0; i < COLUMN; ++i) sums[i] += left[l][y * COLUMN + i] * factor;
        }
        __syncthreads();
    }
    for (int i = 0; i < COLUMN; ++i) {
        const u64 to = row + y * COLUMN + i, j = column + x;
        if (to < m && j < n) encode(sums[i], c + to * n + j);
    }
}

#define KERNELS(name, type)                                                                      \
    extern "C" __global__ void __launch_bounds__(256) naive_##name(                              \
        const type* a, const type* b, type* c, u64 m, u64 n, u64 k) {                            \
        naive(a, b, c, m, n, k);                                                                 \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(512) tiled_##name(                              \
        const type* a, const type* b, type* c, u64 m, u64 n, u64 k) {                            \
        tiled(a, b, c, m, n, k);                                                                 \
    }

KERNELS(fp32, float)
KERNELS(bf16, bf16)
KERNELS(fp16, fp16)
