// Kernels that the timers launch around an operation; all but those that touch memory have one thread.
// Their names distinguish them from the kernels of the operation in a trace.

typedef unsigned long long u64;

__device__ static u64 globaltimer_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

// Time and cycle counter of this SM: two stamps on one SM give its clock between them.
__device__ static void write_stamp(u64* out) {
    const u64 ns = globaltimer_ns();
    const u64 cycle = clock64();
    unsigned int sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    out[0] = ns;
    out[1] = cycle;
    out[2] = sm;
}

// Holds the stream until the host sets *flag, so that launch cost stays out of the window. The
// deadline ends a deadlock, if the host itself waits for the device: then *timed_out becomes 1.
// Its two stamps give the clock before the operation.
extern "C" __global__ void gpuperf_block(const volatile int* flag, u64 limit_ns,
                                         volatile int* timed_out, u64* out) {
    write_stamp(out);
    const u64 start = globaltimer_ns();
    while (*flag == 0) {
        if (globaltimer_ns() - start > limit_ns) {
            *timed_out = 1;
            break;
        }
    }
    write_stamp(out + 4);
}

// The start of a window. It runs for a while, in which the front end fetches the launch that
// follows, and its stamp is the last thing that it does.
extern "C" __global__ void gpuperf_open(u64* out, u64 cycles) {
    const u64 start = clock64();
    while (clock64() - start < cycles) {
    }
    write_stamp(out);
}

// The end of a window: its stamp is the first thing that it does.
extern "C" __global__ void gpuperf_close(u64* out) { write_stamp(out); }

// Copies the stamps to memory of the host after the last window: a kernel that writes to the host
// itself ends a quarter of a microsecond later (H200).
extern "C" __global__ void gpuperf_hand_over(const u64* stamps, u64* host, u64 count) {
    for (u64 i = 0; i < count; ++i) host[i] = stamps[i];
}

// An empty kernel, with arguments and a grid.
extern "C" __global__ void gpuperf_empty(u64 a, u64 b, u64 c, u64* out) {
    if (a == 0xdeadbeef) *out = b + c;
}

// The smallest step of %globaltimer: 32 ns on some chips, 1 µs on others.
extern "C" __global__ void gpuperf_tick(u64* out) {
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
extern "C" __global__ void gpuperf_read_lines(const uint4* buffer, u64 count, unsigned int* sink) {
    unsigned int seen = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count;
         i += (u64)gridDim.x * blockDim.x) {
        const uint4 v = buffer[i];
        seen |= v.x | v.y | v.z | v.w;
    }
    if (seen == 0xdeadbeef) *sink = seen;  // keeps the loads; the buffer is zeros
}

// Writes the buffer, so that L2 holds dirty lines, as after an operation that left the cache dirty.
extern "C" __global__ void gpuperf_write_lines(uint4* buffer, u64 count) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count;
         i += (u64)gridDim.x * blockDim.x) {
        buffer[i] = make_uint4(0, 0, 0, 0);
    }
}
