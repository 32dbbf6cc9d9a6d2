// Arithmetic on each element of a vector, sixteen bytes in each thread. Accesses are streaming,
// since data that is used once should not stay in L2.

typedef unsigned long long u64;

// sin^2 x + b cos^2 x by the functions of the library, whose reduction is accurate for any x.
__device__ static float sum_of_squares(float x, float b) {
    float s, c;
    sincosf(x, &s, &c);
    return s * s + b * (c * c);
}

// The same sum for |x| <= 10^4, to 5e-7: subtracts a multiple of pi/2 in three parts, the
// first with few digits, and evaluates polynomials of Cephes (S. L. Moshier) on [-pi/4, pi/4]. After an
// odd number of quarter turns sine and cosine are exchanged; the squares do not depend on their signs.
__device__ static float sum_of_squares_near(float x, float b) {
    const float turns = rintf(x * 0.6366197723675814f);
    const float r = ((x - turns * 1.5703125f) - turns * 4.837512969970703e-4f) -
                    turns * 7.549789948768648e-8f;
    const float r2 = r * r;
    const float s =
        r + r * r2 * (-1.6666654611e-1f + r2 * (8.3321608736e-3f - r2 * 1.9515295891e-4f));
    const float c = 1.0f - 0.5f * r2 +
                    r2 * r2 * (4.166664568298827e-2f -
                               r2 * (1.388731625493765e-3f - r2 * 2.443315711809948e-5f));
    const bool odd = static_cast<int>(turns) & 1;
    return (odd ? b : 1.0f) * (s * s) + (odd ? 1.0f : b) * (c * c);
}

// One branch for four elements instead of the library's branch for each. (fmaxf ignores NaN, which
// stays NaN in either branch.)
__device__ static float4 sums_of_squares(float4 v, float b) {
    const float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    if (most <= 1e4f)
        return make_float4(sum_of_squares_near(v.x, b), sum_of_squares_near(v.y, b),
                           sum_of_squares_near(v.z, b), sum_of_squares_near(v.w, b));
    return make_float4(sum_of_squares(v.x, b), sum_of_squares(v.y, b), sum_of_squares(v.z, b),
                       sum_of_squares(v.w, b));
}

extern "C" __global__ void sincos_vector(const float* x, const float* b, float* y, u64 n) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, count = n / 4;
    if (i < count)
        __stcs(reinterpret_cast<float4*>(y) + i,
               sums_of_squares(__ldcs(reinterpret_cast<const float4*>(x) + i), *b));
    if (i < n % 4) y[count * 4 + i] = sum_of_squares(x[count * 4 + i], *b);
}
