// What the `blocked` timer launches around an operation. One thread each, but for read_lines.

typedef unsigned long long u64;

__device__ static u64 globaltimer_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

// Holds the stream until the host sets *flag, so that launch cost stays out of the window. The
// deadline is the net under a host that waits for the device itself: then *timed_out becomes 1.
extern "C" __global__ void block(const volatile int* flag, u64 limit_ns, volatile int* timed_out) {
    const u64 start = globaltimer_ns();
    while (*flag == 0) {
        if (globaltimer_ns() - start > limit_ns) {
            *timed_out = 1;
            return;
        }
    }
}

// Time and cycle counter of this SM: two stamps on one SM give its clock between them.
extern "C" __global__ void stamp(u64* out) {
    unsigned int sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    out[0] = globaltimer_ns();
    out[1] = clock64();
    out[2] = sm;
}

// The least that a kernel can be: arguments, a full grid, nothing done.
extern "C" __global__ void empty(u64 a, u64 b, u64 c, u64* out) {
    if (a == 0xdeadbeef) *out = b + c;
}

// The smallest step of %globaltimer: 32 ns on some chips, 1 µs on others.
extern "C" __global__ void globaltimer_tick(u64* out) {
    u64 least = ~0ull, last = globaltimer_ns();
    for (int steps = 0; steps < 64;) {
        const u64 now = globaltimer_ns();
        if (now != last) {
            if (now - last < least) least = now - last;
            last = now;
            ++steps;
        }
    }
    *out = least;
}

// Reads the buffer, so that L2 holds its lines and they are clean: a flush that wrote would leave
// dirty lines, whose eviction the measured operation would pay for.
extern "C" __global__ void read_lines(const uint4* buffer, u64 count, unsigned int* sink) {
    unsigned int seen = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count;
         i += (u64)gridDim.x * blockDim.x) {
        const uint4 v = buffer[i];
        seen |= v.x | v.y | v.z | v.w;
    }
    if (seen == 0xdeadbeef) *sink = seen;  // keeps the loads; the buffer is zeros
}
