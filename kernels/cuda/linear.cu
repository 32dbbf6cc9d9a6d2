// y = x Wᵀ for up to 16 rows of x in bf16 and codes of weights W (n, k) of 8 bits, or of 4 bits with two
// in a byte, whose low half belongs to the first half of a row of x and whose high half to the second.
//
// `_linear_cuda.py` defines PACKED (codes have 4 bits), GROUP (weights in k that share a scale), COLUMNS
// (rows of x over eight) and the shape of a block: ACROSS * ALONG warps, of which ALONG share the sums
// over k. Each warp multiplies TILES tiles of 16 rows of W by x, and CHUNKS * 64 bytes of a row in a step.
// An SM runs at least BUSY threads, so that enough bytes are in flight; more threads have fewer registers.
//
// W is the first operand of the tensor cores and reaches them in registers. They sum over k in any order
// that is the same for both operands, so a lane loads 16 adjacent bytes of a row of W and the elements of
// x for these bytes. No lane needs what another has loaded; only sums pass through shared memory.

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

constexpr int HALVES = PACKED ? 2 : 1, THREADS = 32 * ACROSS * ALONG;
constexpr int ROWS = 16 * TILES * ACROSS;  // rows of W in a block
constexpr int LANES = 4, WIDE = 16;        // lanes that share a row of W, and the bytes of a load
constexpr int CHUNK = LANES * WIDE, STEP = CHUNKS * CHUNK;
constexpr int PAD = 4;      // floats between columns of sums, against bank conflicts
constexpr float UNIT = 64;  // a weight is multiplied as its code over UNIT

typedef u16 Scales[HALVES][TILES][2];

// The part of W that a lane multiplies in a step: 16 bytes of each chunk of rows g and g + 8 of each
// tile, where g is lane / 4, and the scales of these rows.
struct Weights {
    uint4 codes[CHUNKS][TILES][2];
    Scales scales;
};

__device__ static float fp32(u16 bf16) { return __uint_as_float((u32)bf16 << 16); }

// Loads 16 bytes of W if they are wanted. The compiler keeps the place of this load, so that the bytes of
// the next step are in flight during a step. W is read once, and the L1 has room for x. The L2 fetches whole
// lines, whose halves two loads read.
__device__ static void load(uint4& to, const u8* from, bool wanted) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
        "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
        : "l"(from), "r"((u32)wanted));
}

// A byte b in each half of a word is the number b 2^-133 in bf16, subnormal below 128. The product with
// 2^127 (of the high bits, which are 16 times as much, with 2^123) plus the offset is the code over UNIT,
// and is exact.
__device__ static u32 scaled(u32 bytes, u32 factor, u32 offset) {
    u32 result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(bytes), "r"(factor), "r"(offset));
    return result;
}

__device__ static u32 eight_bits(u32 bytes) { return scaled(bytes, 0x7F007F00, 0xC000C000); }
__device__ static u32 low_bits(u32 bytes) {
    return scaled(bytes & 0x000F000F, 0x7F007F00, 0xBE00BE00);
}
__device__ static u32 high_bits(u32 bytes) {
    return scaled(bytes & 0x00F000F0, 0x7D007D00, 0xBE00BE00);
}

__device__ static void multiply(float (&sums)[4], const u32 (&w)[4], u32 x, u32 more_x) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x), "r"(more_x));
}

// The sums of a tile: those of row g of W with rows 2 t and 2 t + 1 of x, where t is lane % 4, then those
// of row g + 8.
typedef float Sums[COLUMNS][4];
typedef uint4 Factors[HALVES][COLUMNS];  // eight adjacent elements of row g of x

// Adds the products of 4 bytes of row g, *upper*, and of row g + 8, *lower*, with the first or the second
// four elements of the factors.
__device__ static void add_word(
    Sums (&sums)[HALVES], u32 upper, u32 lower, const Factors& x, bool second) {
    if (!PACKED) upper ^= 0x80808080, lower ^= 0x80808080;
    const u32 pairs[4] = {
        __byte_perm(upper, 0, 0x4140),
        __byte_perm(lower, 0, 0x4140),
        __byte_perm(upper, 0, 0x4342),
        __byte_perm(lower, 0, 0x4342),
    };
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        u32 w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            w[i] = !PACKED ? eight_bits(pairs[i]) : half ? high_bits(pairs[i]) : low_bits(pairs[i]);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const uint4 of = x[half][c];
            multiply(sums[half][c], w, second ? of.z : of.x, second ? of.w : of.y);
        }
    }
}

// The part of a block that one warp computes.
struct Warp {
    const u16 *x[COLUMNS], *scale;
    const u8* rows[TILES][2];
    u32 scale_rows[TILES][2];  // where the scales of each row begin
    u32 width;                 // bytes of a row of W

    __device__ void load_scales(Scales& to, u32 step) const {
        if (!PACKED) return;
#pragma unroll
        for (int half = 0; half < HALVES; ++half)
#pragma unroll
            for (int i = 0; i < 2 * TILES; ++i) {
                const u32 group = (step * STEP + half * width) / GROUP;
                to[half][i / 2][i % 2] = __ldg(scale + scale_rows[i / 2][i % 2] + group);
            }
    }

    __device__ void load_codes(uint4& to, int tile, int i, int chunk, u32 step, bool wanted) const {
        load(to, rows[tile][i] + (u64)step * STEP + chunk * CHUNK, wanted);
    }

    __device__ void load_x(Factors& to, u32 step, int at) const {
#pragma unroll
        for (int half = 0; half < HALVES; ++half)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const u16* from = x[c] + ((u64)step * STEP + half * width);
                to[half][c] = __ldg(reinterpret_cast<const uint4*>(from + at));
            }
    }

    // Adds the products of *step*. Each 16 bytes are replaced by those of *next* after their last use.
    __device__ void add_step(
        Sums (&sums)[TILES][HALVES], Weights& weights, u32 step, u32 next, bool wanted) const {
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            Factors first, second;
            load_x(first, step, chunk * CHUNK);
            load_x(second, step, chunk * CHUNK + 8);
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                uint4(&codes)[2] = weights.codes[chunk][tile];
                add_word(sums[tile], codes[0].x, codes[1].x, first, false);
                add_word(sums[tile], codes[0].y, codes[1].y, first, true);
            }
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                uint4(&codes)[2] = weights.codes[chunk][tile];
                add_word(sums[tile], codes[0].z, codes[1].z, second, false);
                add_word(sums[tile], codes[0].w, codes[1].w, second, true);
                load_codes(codes[0], tile, 0, chunk, next, wanted);
                load_codes(codes[1], tile, 1, chunk, next, wanted);
            }
        }
    }

    // Adds the products of every ALONG-th step from *first* on.
    __device__ void add_steps(Sums (&totals)[TILES], u32 first) const {
        const u32 steps = width / STEP;
        if (first >= steps) return;
        Weights weights = {};
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
            for (int i = 0; i < 2 * TILES; ++i)
                load_codes(weights.codes[chunk][i / 2][i % 2], i / 2, i % 2, chunk, first, true);
        load_scales(weights.scales, first);
        for (u32 step = first; step < steps; step += ALONG) {
            const bool more = step + ALONG < steps;
            const u32 next = more ? step + ALONG : step;
            Scales scales;
            load_scales(scales, next);
            Sums sums[TILES][HALVES] = {};
            add_step(sums, weights, step, next, more);
            add_scaled(totals, sums, weights.scales);
            memcpy(weights.scales, scales, sizeof(scales));
        }
    }

    // Adds the sums of a step to the totals, multiplied by the scales of int4.
    __device__ static void add_scaled(
        Sums (&totals)[TILES], const Sums (&sums)[TILES][HALVES], const Scales& scales) {
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int i = 0; i < 4 * COLUMNS * HALVES; ++i) {
                const int half = i / (4 * COLUMNS), c = i / 4 % COLUMNS;
                const float scale = PACKED ? fp32(scales[half][tile][i / 2 % 2]) : 1;
                totals[tile][c][i % 4] += scale * sums[tile][half][c][i % 4];
            }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BUSY / THREADS ? BUSY / THREADS : 1) linear(
    const u16* x, const u8* weight, const u16* scale, u16* y, u32 m, u32 n, u32 k) {
    __shared__ float shared[ALONG][8 * COLUMNS][ROWS + PAD];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / LANES, t = lane % LANES;
    const int along = warp / ACROSS, corner = warp % ACROSS * 16 * TILES;
    Warp part;
    part.width = k / HALVES, part.scale = scale;
    // Rows beyond the end of x and W repeat the last one, and their sums are not stored.
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) part.x[c] = x + (u64)min(8 * c + g, m - 1) * k + t * WIDE;
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) {
        const u32 row = min(blockIdx.x * ROWS + corner + 8 * i + g, n - 1);
        part.rows[i / 2][i % 2] = weight + (u64)row * part.width + t * WIDE;
        part.scale_rows[i / 2][i % 2] = row * (k / GROUP);
    }
    Sums totals[TILES] = {};
    part.add_steps(totals, along);
#pragma unroll
    for (int i = 0; i < 4 * TILES * COLUMNS; ++i) {
        const int column = i / 4 % COLUMNS * 8 + 2 * t + i % 2;
        const int row = corner + i / (4 * COLUMNS) * 16 + i / 2 % 2 * 8 + g;
        shared[along][column][row] = totals[i / (4 * COLUMNS)][i / 4 % COLUMNS][i % 4];
    }
    __syncthreads();
    for (int at = threadIdx.x; at < 8 * COLUMNS * ROWS; at += THREADS) {
        const u32 row = at % ROWS, column = at / ROWS, j = blockIdx.x * ROWS + row;
        float total = 0;
        for (int i = 0; i < ALONG; ++i) total += shared[i][column][row];
        if (column >= m || j >= n) continue;
        total *= PACKED ? UNIT : UNIT * fp32(scale[j]);
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y[(u64)column * n + j]) : "f"(total));
    }
}
