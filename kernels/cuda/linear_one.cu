// y = x Wᵀ for one row x in bf16 and codes of weights W (n, k) of 8 bits, or of 4 bits with two in a byte,
// whose low half belongs to the first half of x and whose high half to the second.
//
// The tensor cores multiply whole numbers of 8 bits, so that codes are hardly converted. Elements of x
// become multiples of 2^-30 of the least power of 2 above their largest magnitude, and these a sum of four
// digits to the base 256, from -128 to 127: a digit is a column of the second operand. Sums of products are
// exact. Where x has an infinity or NaN, y is NaN.
//
// `_linear_cuda.py` defines PACKED (codes have 4 bits), GROUP (weights in k that share a scale) and the shape
// of a block: ACROSS * ALONG warps, of which ALONG share the sums over k. Each warp multiplies 16 rows of W by
// x, and CHUNKS * 64 bytes of a row in a step. An SM runs at least BUSY threads.

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

constexpr int HALVES = PACKED ? 2 : 1, WARPS = ACROSS * ALONG, THREADS = 32 * WARPS;
constexpr int ROWS = 16 * ACROSS;     // rows of W in a block
constexpr int LANES = 4, WIDE = 16;   // lanes that share a row of W, and the bytes of a load
constexpr int CHUNK = LANES * WIDE, STEP = CHUNKS * CHUNK;
constexpr int DIGITS = 4, BITS = 30;  // of an element of x
constexpr int EIGHT = 8;              // elements of x in a load
constexpr int PAD = 4;                // floats between columns of sums, against bank conflicts

__device__ static float fp32(u32 bf16) { return __uint_as_float(bf16 << 16); }

// Loads 16 bytes of W if they are wanted. The compiler keeps the place of this load, so that the bytes of
// the next step are in flight during a step. W is read once, and the L2 fetches whole lines, whose halves two
// loads read.
__device__ static void load(uint4& to, const u8* from, bool wanted) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
        "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
        : "l"(from), "r"((u32)wanted));
}

__device__ static void multiply(int (&sums)[4], const u32 (&w)[4], u32 x, u32 more_x) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x), "r"(more_x));
}

__device__ static int nearest(float value) {
    int result;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(result) : "f"(value));
    return result;
}

// The digits of x in shared memory, those of one place side by side, and the value of a last digit.
struct Digits {
    u8* at;
    u32 pitch;  // bytes from the digits of one place to those of the next
    float unit;

    // The rows of digits that eight lanes read at a time begin in different banks.
    __device__ Digits(u8* memory, u32 k) : at(memory), pitch(k % 128 ? k : k + 64) {}

    __device__ uint4 read(u32 place, u32 element) const {
        return *reinterpret_cast<const uint4*>(at + place * pitch + element);
    }

    // Returns the digits of four elements by place.
    __device__ static uint4 digits_of(uint2 elements, float scale) {
        const u32 bf16[4] = {elements.x & 0xFFFF, elements.x >> 16, elements.y & 0xFFFF, elements.y >> 16};
        u32 each[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) each[i] = (u32)nearest(fp32(bf16[i]) * scale) + 0x00808080 ^ 0x00808080;
        const u32 lower = __byte_perm(each[0], each[1], 0x5140), upper = __byte_perm(each[0], each[1], 0x7362);
        const u32 after = __byte_perm(each[2], each[3], 0x5140), above = __byte_perm(each[2], each[3], 0x7362);
        return {__byte_perm(lower, after, 0x5410), __byte_perm(lower, after, 0x7632),
                __byte_perm(upper, above, 0x5410), __byte_perm(upper, above, 0x7632)};
    }

    // All threads of a block compute the digits of the k elements of x.
    __device__ void compute(const u16* x, u32 k) {
        __shared__ u32 largest[WARPS];
        u32 top = 0;  // the bits of the largest magnitude, in the order of their numbers
        for (u32 i = threadIdx.x * EIGHT; i < k; i += THREADS * EIGHT) {
            const uint4 words = __ldg(reinterpret_cast<const uint4*>(x + i));
            const u32 four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) top = max(top, max(four[j] & 0x7FFF, four[j] >> 16 & 0x7FFF));
        }
        top = __reduce_max_sync(~0u, top);
        if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = top;
        __syncthreads();
        top = __reduce_max_sync(~0u, threadIdx.x % 32 < WARPS ? largest[threadIdx.x % 32] : 0);
        // 2^BITS over the power of 2 above: exponents of fp32 have a bias of 127, and are at most 254.
        const u32 exponent = min(BITS + 253 - (top >> 7), 254);
        const float scale = __uint_as_float(exponent << 23);
        unit = top >> 7 == 255 ? __uint_as_float(0x7FC00000) : 1 / scale;
        for (u32 i = threadIdx.x * EIGHT; i < k; i += THREADS * EIGHT) {
            const uint4 words = __ldg(reinterpret_cast<const uint4*>(x + i));
            const uint4 first = digits_of({words.x, words.y}, scale), second = digits_of({words.z, words.w}, scale);
            const uint2 places[DIGITS] = {
                {first.x, second.x}, {first.y, second.y}, {first.z, second.z}, {first.w, second.w}};
#pragma unroll
            for (int j = 0; j < DIGITS; ++j) *reinterpret_cast<uint2*>(at + j * pitch + i) = places[j];
        }
        __syncthreads();
    }
};

// A code of 4 bits becomes 16 times its value in a byte.
__device__ static u32 high_codes(u32 word) { return word & 0xF0F0F0F0 ^ 0x80808080; }
__device__ static u32 codes_of(u32 word, int half) {
    return !PACKED ? word : high_codes(half ? word : word << 4);
}

// The part of a block that one warp computes: rows g and g + 8, where g is lane / 4.
struct Warp {
    const u8* rows[2];
    const u16* scales[2];
    u32 width;  // bytes of a row of W

    __device__ void load_step(uint4 (&to)[CHUNKS][2], u32 step, bool wanted) const {
#pragma unroll
        for (int i = 0; i < 2 * CHUNKS; ++i) load(to[i / 2][i % 2], rows[i % 2] + (u64)step * STEP + i / 2 * CHUNK, wanted);
    }

    __device__ void load_scales(u16 (&to)[HALVES][2], u32 step) const {
#pragma unroll
        for (int i = 0; i < 2 * HALVES; ++i)
            if (PACKED) to[i / 2][i % 2] = __ldg(scales[i % 2] + (step * STEP + i / 2 * width) / GROUP);
    }

    // Adds the products of 16 bytes of each row and the digits for them.
    __device__ static void add_chunk(int (&sums)[4], const uint4 (&codes)[2], uint4 x, int half) {
        const u32 first[4] = {codes_of(codes[0].x, half), codes_of(codes[1].x, half), codes_of(codes[0].y, half),
                              codes_of(codes[1].y, half)};
        const u32 second[4] = {codes_of(codes[0].z, half), codes_of(codes[1].z, half),
                               codes_of(codes[0].w, half), codes_of(codes[1].w, half)};
        multiply(sums, first, x.x, x.y);
        multiply(sums, second, x.z, x.w);
    }

    // Adds the products of every ALONG-th step from *step* on, whose codes are loaded.
    __device__ void add_steps(float (&totals)[4], uint4 (&codes)[CHUNKS][2], const Digits& x, u32 step) const {
        const u32 place = threadIdx.x % 32 / LANES % DIGITS, t = threadIdx.x % LANES, steps = width / STEP;
        u16 scale[HALVES][2];
        int sums[HALVES][4] = {};
        if (step < steps) load_scales(scale, step);
        for (; step < steps; step += ALONG) {
            const bool more = step + ALONG < steps;
            const u32 next = more ? step + ALONG : step;
            u16 later[HALVES][2];
            load_scales(later, next);
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                const u32 element = step * STEP + chunk * CHUNK + t * WIDE;
#pragma unroll
                for (int half = 0; half < HALVES; ++half)
                    add_chunk(sums[half], codes[chunk], x.read(place, element + half * width), half);
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    load(codes[chunk][i], rows[i] + (u64)next * STEP + chunk * CHUNK, more);
            }
            if (!PACKED) continue;
#pragma unroll
            for (int i = 0; i < 4 * HALVES; ++i) {
                totals[i % 4] += fp32(scale[i / 4][i % 4 / 2]) * sums[i / 4][i % 4];
                sums[i / 4][i % 4] = 0;
            }
            memcpy(scale, later, sizeof scale);
        }
        if (!PACKED)
#pragma unroll
            for (int i = 0; i < 4; ++i) totals[i] = sums[0][i];
    }
};

extern __shared__ uint4 memory[];

extern "C" __global__ void __launch_bounds__(THREADS, BUSY / THREADS ? BUSY / THREADS : 1) linear_one(
    const u16* x, const u8* weight, const u16* scale, u16* y, u32 n, u32 k) {
    __shared__ float shared[ALONG][DIGITS][ROWS + PAD];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / LANES, t = lane % LANES;
    const u32 along = warp / ACROSS, corner = warp % ACROSS * 16;
    Warp part;
    part.width = k / HALVES;
    // Rows beyond the end of W repeat the last one, and their sums are not stored.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const u32 row = min(blockIdx.x * ROWS + corner + 8 * i + g, n - 1);
        part.rows[i] = weight + (u64)row * part.width + t * WIDE, part.scales[i] = scale + (u64)row * (k / GROUP);
    }
    uint4 codes[CHUNKS][2] = {};
    part.load_step(codes, along, along < part.width / STEP);  // on their way while digits are computed
    Digits digits(reinterpret_cast<u8*>(memory), k);
    digits.compute(x, k);
    float totals[4] = {};
    part.add_steps(totals, codes, digits, along);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (t < DIGITS / 2) shared[along][2 * t + i % 2][corner + i / 2 * 8 + g] = totals[i];
    __syncthreads();
    for (u32 row = threadIdx.x; row < ROWS; row += THREADS) {
        const u32 j = blockIdx.x * ROWS + row;
        float total = 0;
#pragma unroll
        for (int place = DIGITS - 1; place >= 0; --place) {
            float sum = 0;
            for (int i = 0; i < ALONG; ++i) sum += shared[i][place][row];
            total = total * 256 + sum;
        }
        if (j >= n) continue;
        total *= digits.unit * (PACKED ? 0.0625f : fp32(scale[j]));
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y[j]) : "f"(total));
    }
}
