// Arithmetic on each element of a vector, sixteen bytes a thread and load. A block takes a piece of so
// many loads for each thread, all on their way before the first is waited for, and then the next
// piece. What is read and written once needs no place in L2.

typedef unsigned long long u64;

// sin^2 x + cos^2 x. One reduction of x to [-pi/4, pi/4] serves both functions.
__device__ static float sum_of_squares(float x) {
    float s, c;
    sincosf(x, &s, &c);
    return s * s + c * c;
}

template <int LOADS>
__device__ static void sincos_pieces(const float* x, float* y, u64 n) {
    const float4* from = reinterpret_cast<const float4*>(x);
    float4* to = reinterpret_cast<float4*>(y);
    const u64 count = n / 4, piece = (u64)blockDim.x * LOADS;
    for (u64 first = blockIdx.x * piece + threadIdx.x; first < count; first += gridDim.x * piece) {
        float4 v[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; ++j)
            if (first + j * blockDim.x < count) v[j] = __ldcs(from + first + j * blockDim.x);
#pragma unroll
        for (int j = 0; j < LOADS; ++j)
            if (first + j * blockDim.x < count)
                __stcs(to + first + j * blockDim.x,
                       make_float4(sum_of_squares(v[j].x), sum_of_squares(v[j].y),
                                   sum_of_squares(v[j].z), sum_of_squares(v[j].w)));
    }
    const u64 rest = count * 4 + blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (rest < n) y[rest] = sum_of_squares(x[rest]);
}

extern "C" __global__ void sincos_1(const float* x, float* y, u64 n) { sincos_pieces<1>(x, y, n); }
extern "C" __global__ void sincos_2(const float* x, float* y, u64 n) { sincos_pieces<2>(x, y, n); }
extern "C" __global__ void sincos_4(const float* x, float* y, u64 n) { sincos_pieces<4>(x, y, n); }
