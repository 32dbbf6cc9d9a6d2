// CUDA C of one kernel without a GPU: each thread of a block is a thread of the CPU. Those of a warp meet
// in a shuffle and in `mma`, which is computed as the PTX ISA describes mma.m16n8k16 with bf16. Blocks run
// one after the other, and those of a cluster at the same time. An asynchronous copy happens when a thread
// waits for it, and not before.

#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static

using std::memcpy;

struct float4 {
    float x, y, z, w;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct Index {
    unsigned x;
};
struct Operands {
    unsigned a[4], b[2];
};
struct Warp32 {
    std::barrier<> meet{32};
    Operands of[32];
    float shuffled[32];
    unsigned passed[32];
};
struct Block {
    std::barrier<> meet;
    std::vector<std::unique_ptr<Warp32>> warps;
    alignas(16) unsigned char shared[1 << 18] = {};

    explicit Block(unsigned threads) : meet(threads) {
        for (unsigned i = 0; i < threads / 32; ++i) warps.push_back(std::make_unique<Warp32>());
    }
};
struct Copy {
    unsigned to;
    const void* from;
    bool wanted;
};

static thread_local Index threadIdx, blockIdx;
static thread_local Block* block;
static thread_local std::deque<std::vector<Copy>> copies;  // groups of copies that are not there
static Index gridDim;
static std::vector<std::unique_ptr<Block>> cluster_blocks;
static std::unique_ptr<std::barrier<>> cluster_meet;

inline Warp32& warp_of_thread() { return *block->warps[threadIdx.x / 32]; }
inline void __syncthreads() { block->meet.arrive_and_wait(); }
inline void meet_cluster() { cluster_meet->arrive_and_wait(); }

// Addresses of shared memory are places in that of the block.
inline unsigned __cvta_generic_to_shared(const void* at) {
    return (const unsigned char*)at - block->shared;
}
inline uint4 read_shared(unsigned from) {
    uint4 to;
    memcpy(&to, block->shared + from, sizeof to);
    return to;
}
template <class T> void store_to_peer(unsigned to, unsigned peer, const T& value) {
    memcpy(cluster_blocks[peer]->shared + to, &value, sizeof value);
}

inline void copy_16_bytes(unsigned to, const void* from, bool wanted) {
    if (copies.empty()) copies.emplace_back();
    copies.back().push_back({to, from, wanted});
}
inline void end_group() { copies.emplace_back(); }
inline void await_groups(unsigned left) {
    while (copies.size() > left + 1) {
        for (const Copy& each : copies.front())
            if (each.wanted)
                memcpy(block->shared + each.to, each.from, 16);
            else
                std::memset(block->shared + each.to, 0, 16);
        copies.pop_front();
    }
}

inline float __shfl_xor_sync(unsigned, float value, int other) {
    Warp32& warp = warp_of_thread();
    const int lane = threadIdx.x % 32;
    warp.shuffled[lane] = value;
    warp.meet.arrive_and_wait();
    const float got = warp.shuffled[lane ^ other];
    warp.meet.arrive_and_wait();
    return got;
}

inline unsigned __shfl_sync(unsigned, unsigned value, int from) {
    Warp32& warp = warp_of_thread();
    warp.passed[threadIdx.x % 32] = value;
    warp.meet.arrive_and_wait();
    const unsigned got = warp.passed[from];
    warp.meet.arrive_and_wait();
    return got;
}

inline float __shfl_sync(unsigned mask, float value, int from) {
    return std::bit_cast<float>(__shfl_sync(mask, std::bit_cast<unsigned>(value), from));
}

inline void __threadfence() {}
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
template <class T> T __ldg(const T* from) { return *from; }

inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
    return std::atomic_ref<unsigned>(*to).fetch_add(value);
}

inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selected) {
    const uint64_t bytes = a | (uint64_t)b << 32;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i)
        result |= (unsigned)(bytes >> 8 * (selected >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

inline double from_bf16(unsigned bits) { return __uint_as_float(bits << 16); }

inline unsigned to_bf16(double value) {
    const float rounded = (float)value;
    unsigned bits;
    memcpy(&bits, &rounded, sizeof bits);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

inline unsigned fma_bf16x2(unsigned a, unsigned b, unsigned c) {
    const unsigned low = to_bf16(from_bf16(a) * from_bf16(b) + from_bf16(c));
    return low | to_bf16(from_bf16(a >> 16) * from_bf16(b >> 16) + from_bf16(c >> 16)) << 16;
}

inline void mma(float (&sums)[4], const unsigned (&a)[4], unsigned first, unsigned second) {
    Warp32& warp = warp_of_thread();
    const int lane = threadIdx.x % 32;
    memcpy(warp.of[lane].a, a, sizeof a);
    warp.of[lane].b[0] = first, warp.of[lane].b[1] = second;
    warp.meet.arrive_and_wait();
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = sums[i];
        for (int k = 0; k < 16; ++k) {
            const int owner = k % 8 / 2, upper = k / 8, shift = k % 2 * 16;
            sum += from_bf16(warp.of[row % 8 * 4 + owner].a[row / 8 + 2 * upper] >> shift) *
                   from_bf16(warp.of[column * 4 + owner].b[upper] >> shift);
        }
        sums[i] = (float)sum;
    }
    warp.meet.arrive_and_wait();
}

inline double from_fp16(unsigned bits) {
    _Float16 value;
    const uint16_t half = bits;
    memcpy(&value, &half, sizeof value);
    return (double)value;
}
inline unsigned to_fp16(float value) {
    const _Float16 rounded = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}

template <class Kernel>
void run_clusters(unsigned clusters, unsigned size, unsigned count, Kernel kernel) {
    gridDim.x = clusters * size;
    for (unsigned c = 0; c < clusters; ++c) {
        cluster_meet = std::make_unique<std::barrier<>>(size * count);
        cluster_blocks.clear();
        for (unsigned b = 0; b < size; ++b) cluster_blocks.push_back(std::make_unique<Block>(count));
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < size * count; ++t)
            threads.emplace_back([=] {
                blockIdx.x = c * size + t / count, threadIdx.x = t % count;
                block = cluster_blocks[t / count].get();
                kernel();
            });
        for (auto& thread : threads) thread.join();
    }
}

template <class Kernel> void run_blocks(unsigned blocks, unsigned count, Kernel kernel) {
    run_clusters(blocks, 1, count, kernel);
}
