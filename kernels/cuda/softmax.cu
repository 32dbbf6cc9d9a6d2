// Softmax over the rows of x (m, n) in the parts of `rows.cu`, and its gradient.

extern "C" __global__ void __launch_bounds__(THREADS, PER_SM) CLUSTERED softmax(
    const u16* x, u16* y, u32* taken, u32 m, u32 n, u64 stride) {
    __shared__ Shared shared;
    Exchange sums{shared};
    auto part = part_of<1>(m, n);
    part.inputs[0] = x, part.strides[0] = stride;
    for (part.begin(); part.row() < m; part.step(sums.taken())) {
        part.await();
        float power[PIECES][WIDE], most = LOWEST, total = 0;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            part.read(power[piece], 0, piece);
#pragma unroll
            for (int i = 0; i < WIDE; ++i)
                if (part.has(piece)) most = fmaxf(most, power[piece][i]);
        }
        // Between these reads, copies made rows of 64 Ki 4 % slower on an H200.
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) part.refill(piece);
        part.advance();
        most = warp_max(most);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece)
#pragma unroll
            for (int i = 0; i < WIDE; ++i) {
                power[piece][i] = power_of_2((power[piece][i] - most) * LOG2E);
                if (part.has(piece)) total += power[piece][i];
            }
        sums.share<true>({most, warp_sum(total)});
        sums.take(taken);
        float peak = LOWEST;
        total = 0;
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (sums.has(i)) peak = fmaxf(peak, sums.get(i).a);
        peak = warp_max(peak);
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (sums.has(i)) total += sums.get(i).b * power_of_2((sums.get(i).a - peak) * LOG2E);
        const float scale = power_of_2((most - peak) * LOG2E) / warp_sum(total);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
            for (int i = 0; i < WIDE; ++i) power[piece][i] *= scale;
            part.write(y, piece, power[piece]);
        }
    }
    sums.finish(taken);
}

// dx = y (dy - Σ y dy)
extern "C" __global__ void __launch_bounds__(THREADS, PER_SM) CLUSTERED softmax_backward(
    const u16* y, const u16* dy, u16* dx, u32* taken, u32 m, u32 n, u64 stride) {
    __shared__ Shared shared;
    Exchange sums{shared};
    auto part = part_of<2>(m, n);
    part.inputs[0] = y, part.strides[0] = n, part.inputs[1] = dy, part.strides[1] = stride;
    for (part.begin(); part.row() < m; part.step(sums.taken())) {
        part.await();
        float share[WIDE], grad[WIDE], total = 0;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            part.read(share, 0, piece), part.read(grad, 1, piece);
#pragma unroll
            for (int i = 0; i < WIDE; ++i) total += share[i] * grad[i];
        }
        sums.share<true>({warp_sum(total), 0});
        sums.take(taken);
        total = 0;
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (sums.has(i)) total += sums.get(i).a;
        const float mean = warp_sum(total);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            part.read(share, 0, piece), part.read(grad, 1, piece);
            part.refill(piece);
#pragma unroll
            for (int i = 0; i < WIDE; ++i) grad[i] = share[i] * (grad[i] - mean);
            part.write(dx, piece, grad);
        }
        part.advance();
    }
    sums.finish(taken);
}
