// Kernels that read, write, copy, or scale and add vectors. Each thread moves sixteen bytes at a time,
// and advances by the size of the grid.

typedef unsigned long long u64;

extern "C" __global__ void write_vector(float* y, u64 n, float value) {
    const u64 step = gridDim.x * (u64)blockDim.x, first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    float4* wide = reinterpret_cast<float4*>(y);
    for (u64 i = first; i < n / 4; i += step) wide[i] = make_float4(value, value, value, value);
    for (u64 i = n / 4 * 4 + first; i < n; i += step) y[i] = value;
}

extern "C" __global__ void copy_vector(const float* x, float* y, u64 n) {
    const u64 step = gridDim.x * (u64)blockDim.x, first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    const float4* from = reinterpret_cast<const float4*>(x);
    float4* to = reinterpret_cast<float4*>(y);
    for (u64 i = first; i < n / 4; i += step) to[i] = from[i];
    for (u64 i = n / 4 * 4 + first; i < n; i += step) y[i] = x[i];
}

extern "C" __global__ void triad_vector(const float* a, const float* b, float* c, u64 n, float s) {
    const u64 step = gridDim.x * (u64)blockDim.x, first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    const float4 *wide_a = reinterpret_cast<const float4*>(a),
                 *wide_b = reinterpret_cast<const float4*>(b);
    float4* wide_c = reinterpret_cast<float4*>(c);
    for (u64 i = first; i < n / 4; i += step) {
        const float4 x = wide_a[i], y = wide_b[i];
        wide_c[i] = make_float4(x.x + s * y.x, x.y + s * y.y, x.z + s * y.z, x.w + s * y.w);
    }
    for (u64 i = n / 4 * 4 + first; i < n; i += step) c[i] = a[i] + s * b[i];
}

// Sum over the threads of a block.
__device__ void sum_threads(float sum, float* y) {
    __shared__ float partial[32];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_down_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < blockDim.x / 32; ++warp) sum += partial[warp];
        *y = sum;
    }
}

// One block for each row: each thread sums its share, then the block sums its threads.
extern "C" __global__ void sum_rows(const float* x, float* y, u64 n) {
    const float* row = x + blockIdx.x * n;
    float sum = 0;
    if (n % 4 == 0) {
        const float4* wide = reinterpret_cast<const float4*>(row);
#pragma unroll 4
        for (u64 i = threadIdx.x; i < n / 4; i += blockDim.x) {
            const float4 v = wide[i];
            sum += (v.x + v.y) + (v.z + v.w);
        }
    } else {
        for (u64 i = threadIdx.x; i < n; i += blockDim.x) sum += row[i];
    }
    sum_threads(sum, y + blockIdx.x);
}

// One block for each row, which stays in L1 and is summed again and again.
extern "C" __global__ void sum_rows_in_l1(const float4* x, float* y, unsigned count, unsigned steps) {
    const float4* row = x + blockIdx.x * (u64)count;
    float sum = 0;
    unsigned at = threadIdx.x;
#pragma unroll 8
    for (unsigned step = 0; step < steps; ++step) {
        const float4 v = __ldca(row + at);
        sum += (v.x + v.y) + (v.z + v.w);
        at += blockDim.x;
        if (at >= count) at -= count;
    }
    sum_threads(sum, y + blockIdx.x);
}

// Sums a vector again and again through L2: loads bypass L1, and each thread reads another part in each
// pass. The grid has one thread for every four elements.
extern "C" __global__ void sum_passes(const float4* x, float* y, u64 count, u64 passes, u64 step) {
    const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (first >= count) return;
    float sum = 0;
    u64 i = first;
#pragma unroll 8
    for (u64 pass = 0; pass < passes; ++pass) {
        const float4 v = __ldcg(x + i);
        sum += (v.x + v.y) + (v.z + v.w);
        i += step;
        if (i >= count) i -= count;
    }
    y[first] = sum;
}
