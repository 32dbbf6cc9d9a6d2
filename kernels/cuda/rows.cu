// Parts of long rows of tensors (m, n) in bf16 or fp16, and sums over rows. `softmax.cu` and `norms.cu`
// follow this text.
//
// A cluster of CLUSTER blocks holds a row: each block a part of THREADS * PIECES * 8 elements, which no other
// block reads. DEPTH parts of rows are in shared memory or on their way there, so that memory works while a
// row waits for its sums, and vectors (n,) stay there. A thread reads what it has copied itself; only sums of
// warps pass between threads, and those of all blocks at once, by one barrier for each row.
//
// Clusters do not run equally fast (on an H200 some took 1.4 times as long for a row as others), so that each
// takes the next row that no other has, or, where the order of sums matters, every so many rows.
//
// `_rows_cuda.py` defines these constants, PER_SM (blocks that an SM has room for), BF16 (else fp16) and FULL
// (the parts of a row are full).

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;

constexpr int WIDE = 8, BYTES = 16;  // elements and bytes of a piece
constexpr int WARPS = THREADS / 32, SLOTS = CLUSTER * WARPS;
constexpr int LINE = THREADS * BYTES, STRIDE = THREADS * WIDE;  // from a piece to the thread's next one
constexpr int EACH = (SLOTS + 31) / 32;                         // sums of warps that a lane reads
constexpr float LOWEST = -3.4028234e38f, LOG2E = 1.44269504f;

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

struct Pair {
    float a, b;
};

__device__ static float warp_sum(float value) {
#pragma unroll
    for (int other = 16; other; other /= 2) value += __shfl_xor_sync(~0u, value, other);
    return value;
}
__device__ static float warp_max(float value) {
#pragma unroll
    for (int other = 16; other; other /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, other));
    return value;
}
__device__ static float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ static void widen(float (&to)[WIDE], uint4 piece) {
    const u32 words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (BF16)
            to[2 * i] = __uint_as_float(words[i] << 16), to[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000);
        else
            asm("{\n.reg .f16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
                : "=f"(to[2 * i]), "=f"(to[2 * i + 1])
                : "r"(words[i]));
}

// Widens a *piece* once more: the compiler would keep the first values in registers, of which these need twice
// as many.
__device__ static void widen_again(float (&to)[WIDE], uint4 piece) {
    asm volatile("// once more" : "+r"(piece.x), "+r"(piece.y), "+r"(piece.z), "+r"(piece.w));
    widen(to, piece);
}

__device__ static uint4 rounded(const float (&from)[WIDE]) {
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (BF16)
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
        else
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
    return {words[0], words[1], words[2], words[3]};
}

__device__ static u32 cluster() { return blockIdx.x / CLUSTER; }
__device__ static u32 clusters() { return gridDim.x / CLUSTER; }

// All blocks of a cluster meet, and see what the others have stored before.
__device__ static void meet() {
    if (CLUSTER == 1)
        __syncthreads();
    else
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Lets the next kernel start once all blocks have called this, if that kernel itself waits for their results.
__device__ static void let_next_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// The part of rows that a thread computes, of INPUTS tensors that are read once.
template <int INPUTS>
struct Part {
    const u16* inputs[INPUTS];
    u64 strides[INPUTS];  // elements from a row to the next
    u32 ring, first, n;   // the first piece in shared memory, and in a row of n elements
    u32 m, rows[DEPTH + 1];  // the rows of the stages in their order, and a later one; m is none
    u32 stage = 0;           // of the row that is computed

    __device__ u32 at(int piece) const { return first + piece * STRIDE; }
    __device__ bool has(int piece) const { return FULL || at(piece) < n; }
    __device__ static u32 place_of(int vector, int piece) { return (DEPTH * INPUTS + vector) * PIECES + piece; }

    // Starts to copy a piece to *place*, or zeros if it is not *there*. On an H200 copies that pass by the L1
    // (.cg) are 5 to 19 % slower here.
    __device__ void fetch(u32 place, const u16* from, bool there) const {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(ring + place * LINE), "l"(from),
                     "r"(there ? BYTES : 0)
                     : "memory");
    }
    // Starts to copy a piece of *row* to a stage.
    __device__ void copy(u32 to, u32 row, int piece) const {
#pragma unroll
        for (int i = 0; i < INPUTS; ++i)
            fetch((to * INPUTS + i) * PIECES + piece, inputs[i] + (u64)row * strides[i] + at(piece),
                  row < m && has(piece));
    }
    __device__ static void end_row() {
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // Starts to copy a *vector*, which comes with the first row.
    __device__ void hold(int which, const u16* vector) const {
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) fetch(place_of(which, piece), vector + at(piece), has(piece));
    }

    __device__ void begin() {
#pragma unroll
        for (int i = 0; i <= DEPTH; ++i) rows[i] = cluster() + i * clusters();
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) copy(i, rows[i], piece);
            end_row();
        }
        meet();  // no block stores to another that has not begun
    }
    __device__ u32 row() const { return rows[0]; }

    // Goes on to the next row; *later* comes after all that are known.
    __device__ void step(u32 later) {
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) rows[i] = rows[i + 1];
        rows[DEPTH] = later;
    }

    __device__ uint4 at_place(u32 place) const {
        uint4 piece;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
                     : "r"(ring + place * LINE)
                     : "memory");
        return piece;
    }
    __device__ uint4 packed(int input, int piece) const { return at_place((stage * INPUTS + input) * PIECES + piece); }
    __device__ void read(float (&to)[WIDE], int input, int piece) const { widen(to, packed(input, piece)); }
    __device__ void read_vector(float (&to)[WIDE], int which, int piece) const {
        widen(to, at_place(place_of(which, piece)));
    }

    // Waits for the oldest row.
    __device__ void await() const {
        asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 1) : "memory");
    }

    // Starts to copy a piece of a later row over that of this row, which is read no more.
    __device__ void refill(int piece) const { copy(stage, rows[DEPTH], piece); }
    // Goes on to the next stage, when all pieces of this one have been refilled.
    __device__ void advance() {
        end_row();
        stage = stage + 1 < DEPTH ? stage + 1 : 0;
    }

    // Stores a piece of a row of n elements.
    __device__ void write(u16* to, int piece, const float (&values)[WIDE]) const {
        if (has(piece)) *reinterpret_cast<uint4*>(to + (u64)row() * n + at(piece)) = rounded(values);
    }
};

extern __shared__ uint4 memory[];

template <int INPUTS>
__device__ static Part<INPUTS> part_of(u32 m, u32 n) {
    Part<INPUTS> part;
    part.ring = (u32)__cvta_generic_to_shared(memory) + threadIdx.x * BYTES;
    part.first = blockIdx.x % CLUSTER * (PIECES * STRIDE) + threadIdx.x * WIDE, part.m = m, part.n = n;
    return part;
}

// Stores to the shared memory of block *peer* of the cluster, at the address of *to* in this block.
__device__ static void store(u32* to, u32 peer, u32 value) {
    if (CLUSTER == 1)
        *to = value;
    else
        asm volatile("{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nst.shared::cluster.u32 [at], %2;\n}" ::"r"(
                     (u32)__cvta_generic_to_shared(to)),
                 "r"(peer), "r"(value)
                 : "memory");
}

// What warps tell each other of a row: their sums, each a pair, and a row that the cluster has taken. Two sets
// take turns, so that a block may store its next ones while others still read.
struct Shared {
    Pair sums[2][SLOTS];
    u32 rows[2];
};
struct Exchange {
    Shared& shared;
    u32 turn = 0, ticket = cluster() + (DEPTH + 1) * clusters();

    __device__ bool leads() const { return blockIdx.x % CLUSTER == 0 && threadIdx.x == 0; }

    // The first thread of a cluster takes a row that no other cluster has. The count comes during the rest of
    // this row, and is seen with the sums of the next.
    __device__ void take(u32* taken) {
        if (leads()) ticket = (DEPTH + 2) * clusters() + atomicAdd(taken, 1);
    }
    // The last cluster to end begins the count anew, for the next launch.
    __device__ void finish(u32* taken) const {
        __threadfence();  // its own row is counted before its end
        if (leads() && atomicAdd(taken + 1, 1) == clusters() - 1) taken[0] = taken[1] = 0;
    }
    __device__ u32 taken() const { return shared.rows[turn]; }

    // All blocks see the sums of all warps, and the row that was *taken*.
    template <bool TAKEN>
    __device__ void share(Pair mine) {
        turn ^= 1;
        const u32 lane = threadIdx.x % 32, rank = blockIdx.x % CLUSTER;
        Pair& own = shared.sums[turn][rank * WARPS + threadIdx.x / 32];
        if (lane < CLUSTER) {
            store((u32*)&own.a, lane, __float_as_uint(mine.a));
            store((u32*)&own.b, lane, __float_as_uint(mine.b));
        }
        if (TAKEN && rank == 0 && threadIdx.x < 32) {
            const u32 row = __shfl_sync(~0u, ticket, 0);
            if (lane < CLUSTER) store(&shared.rows[turn], lane, row);
        }
        meet();
    }
    __device__ bool has(int i) const { return threadIdx.x % 32 + 32 * i < SLOTS; }
    __device__ Pair get(int i) const { return shared.sums[turn][threadIdx.x % 32 + 32 * i]; }
};
