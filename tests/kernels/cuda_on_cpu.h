// CUDA C of one kernel without a GPU: each thread of a block is a thread of the CPU, and those of a
// warp meet in `mma`, which is computed as the PTX ISA describes mma.m16n8k16 with bf16.

#include <barrier>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __launch_bounds__(...)
#define __shared__ static

using std::memcpy;

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
};

static thread_local Index threadIdx, blockIdx;
static std::unique_ptr<std::barrier<>> block;
static std::vector<std::unique_ptr<Warp32>> warps;

inline void __syncthreads() { block->arrive_and_wait(); }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
template <class T> T __ldg(const T* from) { return *from; }

inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
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
    Warp32& warp = *warps[threadIdx.x / 32];
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

template <class Kernel> void run_blocks(unsigned blocks, unsigned count, Kernel kernel) {
    block = std::make_unique<std::barrier<>>(count);
    warps.clear();
    for (unsigned i = 0; i < count / 32; ++i) warps.push_back(std::make_unique<Warp32>());
    for (unsigned b = 0; b < blocks; ++b) {
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < count; ++t)
            threads.emplace_back([=] {
                blockIdx.x = b, threadIdx.x = t;
                kernel();
            });
        for (auto& thread : threads) thread.join();
    }
}
