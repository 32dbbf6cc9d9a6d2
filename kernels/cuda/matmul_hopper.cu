// The matrix product C = A·B of bf16, fp16 or fp8 on Hopper, with the tensor cores' `wgmma`.
//
// One warpgroup loads blocks of both operands by TMA. Each of the others multiplies 64 rows of a tile of C, rounds the
// sums, and stores them by TMA, which goes on beside the products of the next tile. Blocks of a cluster have the same
// columns, so that each loads a part of the right operand for both. Programs are persistent: the blocks of the next
// tile arrive while a tile is stored.
//
// The product may be turned: Cᵀ = Bᵀ·Aᵀ. Then the left operand is Bᵀ and the right one Aᵀ, and the rows of a tile are
// columns of C. Below, rows and columns are those of the product as it is computed.
//
// In fp8, B is column-major, and each block's products are added to the sums in fp32, since tensor cores keep
// about 14 bits of a sum of products in fp8. Products are added while the tensor cores have the next ones: those of
// the next block, or, where registers do not suffice, those of the other half of the columns.
//
// Of the last wave each tile may be computed in parts of k. The program of the last part waits for the sums of the
// others and adds them, always in the same order. Where all parts are in one wave, this relies on blocks to start in
// the order of their numbers, as they do on Hopper; else the launch is cooperative.
//
// `_matmul_clusters.py` defines ITEM (bytes of an element), TURNED with TURN (of `stmatrix`), MEMBERS (warpgroups that
// multiply), COLUMNS of a tile, WIDTH (those of the first of its products), PIECES of PIECE columns in which a right
// operand that is contiguous along k is loaded, CLUSTER (blocks), PARTS (whether tiles of the last wave are computed in
// parts of k), STAGES (blocks of k in shared memory), BUFFERS (boxes of C of a warpgroup there), GROUP (rows of tiles
// that are computed together), registers of a thread, ROUND (the conversion of two sums), and `multiply`, with
// `multiply_rest` for the columns from WIDTH on.

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;

struct __align__(64) Map {  // a CUtensorMap
    u64 words[16];
};

constexpr int THREADS = 128, BK = 128 / ITEM, ROWS = 64 * MEMBERS, SUMS = COLUMNS / 2;
constexpr int BOXES = (COLUMNS + 63) / 64, BOX = 64 * 128;  // of 64 rows of the left operand, or columns of the right
constexpr int STAGE = (MEMBERS + BOXES) * BOX, SHARE = 64 / CLUSTER;
// Whether an operand is contiguous along rows or columns of the product. In fp8 both are contiguous along k.
constexpr bool LEFT_WIDE = ITEM == 2 && TURNED, RIGHT_WIDE = ITEM == 2 && !TURNED;

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

__device__ static u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ static void init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ static void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ static void wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(
            barrier),
        "r"(parity)
        : "memory");
}
// Arrive at the barrier of a block of the cluster.
__device__ static void arrive(u32 barrier, u32 block) {
    if (CLUSTER == 1)
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
    else
        asm volatile(
            "{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [at];\n}" ::"r"(barrier),
            "r"(block)
            : "memory");
}
__device__ static void load(u32 to, const Map& map, int x, int y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}
// Load to all blocks of the cluster, and count the bytes at the barrier of each.
__device__ static void load_for_all(u32 to, const Map& map, int x, int y, u32 barrier) {
    if (CLUSTER == 1) return load(to, map, x, y, barrier);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"((u16)((1 << CLUSTER) - 1))
        : "memory");
}
__device__ static void group_meets(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }
__device__ static void cluster_meets() {
    if (CLUSTER == 1)
        __syncthreads();
    else
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Describe a matrix in shared memory, of boxes with a swizzle of 128 bytes.
__device__ static u64 matrix(u32 at) {
    return (u64)((at & 0x3FFFF) >> 4) | (u64)(BOX >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

__device__ static u32 rounded(float low, float high) {
    u32 word;
    asm(ROUND : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// Store 16 x 16 or 16 x 8 elements to shared memory. Lane i gives the address of eight of them: in row i % 16, or, if
// turned, in column i % 8 and the lower or upper eight rows. Lanes from 16 on have the eight columns that follow.
__device__ static void store_matrix(u32 at, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2" TURN ".shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b)
                 : "memory");
}
__device__ static void store_matrix(u32 at, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4" TURN ".shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}
// Begin to store a box of C, and wait until LEFT boxes at most are still read from shared memory.
__device__ static void store_box(const Map& map, u32 from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n"
                 "cp.async.bulk.commit_group;" ::"l"(&map),
                 "r"(from), "r"(x), "r"(y)
                 : "memory");
}
template <int LEFT>
__device__ static void boxes_are_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

// Start the products of a block with the columns before WIDTH, or with those from there on.
template <bool REST>
__device__ static void start_products(float* sums, u32 left, u32 right, bool adds) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        // 32 bytes of each row or column, or 16 elements of k, which have 128 bytes each.
        const u64 rows = matrix(left + step * (LEFT_WIDE ? 16 * 128 : 32));
        const u64 columns = matrix(right + step * (RIGHT_WIDE ? 16 * 128 : 32));
        if (REST)
            multiply_rest(sums, rows, columns + (WIDTH * 128 >> 4), adds || step > 0);
        else
            multiply(sums, rows, columns, adds || step > 0);
    }
}
__device__ static void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait until LEFT groups of products are left. The compiler must not read one of the COUNT sums before.
template <int LEFT, int COUNT>
__device__ static void products_end(float* sums) {
#pragma unroll
    for (int s = 0; s < COUNT; ++s) asm volatile("" : "+f"(sums[s])::"memory");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#pragma unroll
    for (int s = 0; s < COUNT; ++s) asm volatile("" : "+f"(sums[s])::"memory");
}

struct Work {
    int k, rows, columns;      // rows and columns in tiles of a cluster
    int whole, splits, chunk;  // tiles that are computed whole, parts of k of the others, and their length
};

// The tile of an item, and where in k it begins and ends. The first items are whole tiles.
struct Item {
    int row, column, begin, end, part;
    __device__ Item(int item, const Work& work) {
        const int rest = max(item - work.whole, 0), tile = min(item, work.whole + rest / work.splits);
        part = rest % work.splits;
        begin = part * work.chunk;
        end = item < work.whole ? work.k : min(begin + work.chunk, work.k);
        const int first = tile / (GROUP * work.columns) * GROUP, height = min(work.rows - first, GROUP);
        const int within = tile % (GROUP * work.columns);
        row = first + within % height, column = within / height;
    }
};

// The blocks that a warpgroup multiplies, one after the other.
struct Blocks {
    u32 base, full, empty;
    int group, thread;
    u32 stage = 0, parity = 0, last = 0;

    __device__ void wait_for_next() {
        wait(full + 8 * stage, parity);
        last = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    template <bool REST>
    __device__ void start(float* sums, bool adds) const {
        const u32 block = base + last * STAGE;
        start_products<REST>(sums, block + group * BOX, block + MEMBERS * BOX, adds);
    }
    __device__ void free(u32 at) const {
        if (thread < CLUSTER) arrive(empty + 8 * at, thread);
    }
};

#if ITEM == 1
constexpr bool HALVES = COLUMNS > WIDTH;  // a block has two products, of which the second has the rest of the columns
constexpr int EACH = WIDTH / 2, LATER = HALVES ? EACH : 0, REST = SUMS - LATER;
constexpr int PASS = COLUMNS > (MEMBERS == 3 ? 120 : 176) ? 1 : 2;  // blocks, as registers suffice for no more

// End a product, when LEFT ones after it are left, and add it.
template <int LEFT, int COUNT>
__device__ static void add(float* sums, float* some) {
    products_end<LEFT, COUNT>(some);
#pragma unroll
    for (int s = 0; s < COUNT; ++s) sums[s] += some[s];
}

// Add the products of COUNT blocks. The compiler lets products go on only where they end in the same pass of a loop.
template <int COUNT>
__device__ static void add_blocks(Blocks& blocks, float* sums, float* some) {
#pragma unroll
    for (int b = 0; b < COUNT; ++b) {
        const u32 before = blocks.last;
        blocks.wait_for_next();
        fence();
        blocks.start<false>(some + (HALVES ? 0 : b % 2 * EACH), false);
        commit();
        if (b > 0) {
            add<1, REST>(sums + LATER, some + (HALVES ? EACH : (b - 1) % 2 * EACH));
            blocks.free(before);
        }
        if (HALVES) {
            fence();
            blocks.start<true>(some + EACH, false);
            commit();
            add<1, EACH>(sums, some);
        }
    }
    add<0, REST>(sums + LATER, some + (HALVES ? EACH : (COUNT - 1) % 2 * EACH));
    blocks.free(blocks.last);
}
#endif

// Load the blocks of both operands of all items of this program.
__device__ static void load_blocks(const Map& left_at, const Map& right_at, u32 base, u32 full, u32 empty, u32 rank,
                                   int first, int items, int stride, u32 loaded, const Work& work) {
    u32 stage = 0, parity = 1;
    for (int i = first; i < items; i += stride) {
        const Item item(i, work);
        const int y = (item.row * CLUSTER + rank) * ROWS, x = item.column * COLUMNS;
        for (int start = item.begin; start < item.end; start += BK) {
            const u32 left = base + stage * STAGE, right = left + MEMBERS * BOX, ready = full + 8 * stage;
            wait(empty + 8 * stage, parity);
            expect(ready, loaded);
#pragma unroll
            for (int box = 0; box < (LEFT_WIDE ? MEMBERS : 1); ++box)
                load(left + box * BOX, left_at, LEFT_WIDE ? y + box * 64 : start, LEFT_WIDE ? start : y, ready);
#pragma unroll
            for (int box = 0; box < (RIGHT_WIDE ? BOXES : PIECES / CLUSTER); ++box) {
                // The first line of 128 bytes that this block loads, counted in the box or in the tile's columns.
                const int line = RIGHT_WIDE ? rank * SHARE : (box * CLUSTER + rank) * PIECE;
                const u32 to = right + (RIGHT_WIDE ? box * BOX : 0) + line * 128;
                load_for_all(to, right_at, RIGHT_WIDE ? x + box * 64 : start, line + (RIGHT_WIDE ? start : x), ready);
            }
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

// Store the sums of 64 rows of a tile by way of the boxes at *buffers*, which TMA reads while others are written.
__device__ static void store(const Map& c_at, const Map& rest_at, u32 buffers, const float (&sums)[SUMS], int y, int x,
                             int group, int thread) {
    const int lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
        const bool whole = box < COLUMNS / 64;
        const int width = whole ? 64 : COLUMNS % 64;
        const u32 to = buffers + box % BUFFERS * BOX;
        // Each tile begins with the first buffer, whose box need not be the oldest of those that are read.
        if (thread == 0 && box == 0 && BOXES % BUFFERS) boxes_are_read<0>();
        if (thread == 0) boxes_are_read<BUFFERS - 1>();
        group_meets(group);
#pragma unroll
        for (int column = 0; column < width; column += 16) {
            // Where this lane's address points: a line of the box, and eight elements of that line.
            const int line = TURNED ? column + lane / 16 * 8 + lane % 8 : row;
            const int eight = TURNED ? row / 8 : column / 8 + lane / 16;
            const bool swizzled = TURNED || whole;
            const int at = (box * 64 + column) / 2;
            const u32 place = to + (swizzled ? line * 128 + (eight ^ line % 8) * 16 : (line * width + eight * 8) * 2);
            const u32 a = rounded(sums[at], sums[at + 1]), b = rounded(sums[at + 2], sums[at + 3]);
            if (column + 8 < width)
                store_matrix(place, a, b, rounded(sums[at + 4], sums[at + 5]), rounded(sums[at + 6], sums[at + 7]));
            else
                store_matrix(place, a, b);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        group_meets(group);
        const int along = x + box * 64;
        if (thread == 0) store_box(whole ? c_at : rest_at, to, TURNED ? y : along, TURNED ? along : y);
    }
}

constexpr u64 PART = (u64)MEMBERS * CLUSTER * SUMS / 4 * THREADS;  // sums of a tile, in fours

// Leave the sums of a part of k, and count it.
__device__ static void leave(const float (&sums)[SUMS], float4* to, u32* count, int group, int thread) {
#pragma unroll
    for (int q = 0; q < SUMS / 4; ++q)
        __stcg(to + q * THREADS, make_float4(sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]));
    __threadfence();
    group_meets(group);
    if (thread == 0) {
        __threadfence();
        atomicAdd(count, 1);
    }
}

// Add what the others have left, in the order of the parts. *count* is 0 before and after.
__device__ static void collect(float (&sums)[SUMS], const float4* from, u32* count, int others, int group, int thread) {
    if (thread == 0) {
        while (*(volatile u32*)count < others) {
        }
        __threadfence();
        *count = 0;
    }
    group_meets(group);
    for (int other = 0; other < others; ++other, from += PART) {
#pragma unroll
        for (int q = 0; q < SUMS / 4; ++q) {
            const float4 some = __ldcg(from + q * THREADS);
            sums[4 * q] += some.x, sums[4 * q + 1] += some.y, sums[4 * q + 2] += some.z, sums[4 * q + 3] += some.w;
        }
    }
}

extern "C" __global__ CLUSTERED __launch_bounds__(THREADS * (MEMBERS + 1), 1) void matmul_hopper(
    const __grid_constant__ Map left_at, const __grid_constant__ Map right_at, const __grid_constant__ Map c_at,
    const __grid_constant__ Map rest_at, float4* parts, u32* counts, const u32 loaded, const int k, const int rows,
    const int columns, const int whole, const int splits, const int chunk) {
    extern __shared__ unsigned char memory[];
    const Work work = {k, rows, columns, whole, splits, chunk};
    const u32 base = (address(memory) + 1023) & ~1023u;
    const u32 buffers = base + STAGES * STAGE, full = buffers + MEMBERS * BUFFERS * BOX, empty = full + 8 * STAGES;
    const int group = threadIdx.x / THREADS, thread = threadIdx.x % THREADS;
    u32 rank = 0;
    if (CLUSTER > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;
    const int items = whole + (rows * columns - whole) * splits;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) init(full + 8 * s, 1), init(empty + 8 * s, MEMBERS * CLUSTER);
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
    }
    cluster_meets();
    if (group == MEMBERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LOADER));
        if (thread == 0) load_blocks(left_at, right_at, base, full, empty, rank, first, items, stride, loaded, work);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
        Blocks blocks = {base, full, empty, group, thread};
        for (int i = first; i < items; i += stride) {
            const Item item(i, work);
            float sums[SUMS];
#if ITEM == 1
            float some[2 * EACH];
#pragma unroll
            for (int s = 0; s < SUMS; ++s) sums[s] = 0;
            int start = item.begin;
            for (; start + (PASS - 1) * BK < item.end; start += PASS * BK) add_blocks<PASS>(blocks, sums, some);
            if constexpr (PASS > 1)
                for (; start < item.end; start += BK) add_blocks<1>(blocks, sums, some);
#else
            // Blocks whose products are left when those of the next one begin. A warpgroup that is alone must not let
            // the tensor cores wait; several fill each other's pauses, and free a block sooner.
            constexpr int BEHIND = MEMBERS == 1;
            for (int start = item.begin; start < item.end; start += BK) {
                const u32 before = blocks.last;
                blocks.wait_for_next();
                fence();
                blocks.start<false>(sums, start > item.begin);
                if (COLUMNS > WIDTH) blocks.start<true>(sums + WIDTH / 2, start > item.begin);
                commit();
                asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BEHIND) : "memory");
                if (!BEHIND)
                    blocks.free(blocks.last);
                else if (start > item.begin)
                    blocks.free(before);
            }
            products_end<0, SUMS>(sums);
            if (BEHIND) blocks.free(blocks.last);
#endif
            const int y = (item.row * CLUSTER + rank) * ROWS + group * 64, x = item.column * COLUMNS;
            if (PARTS && i >= whole) {
                const int tile = (i - whole) / splits, place = (rank * MEMBERS + group) * (SUMS / 4) * THREADS + thread;
                float4* left = parts + tile * (splits - 1) * PART + place;
                u32* count = counts + (tile * CLUSTER + rank) * MEMBERS + group;
                if (item.part < splits - 1) {
                    leave(sums, left + item.part * PART, count, group, thread);
                    continue;
                }
                collect(sums, left, count, splits - 1, group, thread);
            }
            store(c_at, rest_at, buffers + group * BUFFERS * BOX, sums, y, x, group, thread);
        }
        if (thread == 0) boxes_are_read<0>();
    }
    if (CLUSTER > 1) cluster_meets();  // a block stays while the other sends to it or arrives at it
}
