// Layer norm and RMS norm over the rows of x (m, n) in the parts of `rows.cu`, and their gradients.
//
// `_rows_cuda.py` defines CENTRED (layer norm, else RMS norm), ADDED (a residual is added to the rows, or the
// gradient of that sum to dx) and KEPT (mean and 1/√(variance + ε) are stored for a backward).

// The elements in the part of each warp whose sums a lane reads.
__device__ static void count_elements(float (&counts)[EACH], u32 n) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const u32 slot = threadIdx.x % 32 + 32 * i;
        u32 first = slot / WARPS * (PIECES * STRIDE) + slot % WARPS * (32 * WIDE), count = 0;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece, first += STRIDE)
            count += first < n ? min(n - first, 32 * WIDE) : 0;
        counts[i] = count;
    }
}

__device__ static float mean_of(const float (&values)[WIDE]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WIDE; ++i) sum += values[i];
    return sum / WIDE;
}

// A warp sums differences from the mean of its first eight elements, and their squares, at once. The square of what
// that mean is off by is at most an eighth of the sum of squares about the mean of all N elements, so that at most
// N / 8 times that sum cancels, where these eight are all far from others.
extern "C" __global__ void __launch_bounds__(THREADS, PER_SM) CLUSTERED normalize(
    const u16* x, const u16* residual, const u16* weight, const u16* bias, u16* y, u16* total, float* means,
    float* scales, u32* taken, u32 m, u32 n, u64 stride, float eps) {
    __shared__ Shared shared;
    Exchange sums{shared};
    auto part = part_of<1 + ADDED>(m, n);
    part.inputs[0] = x, part.strides[0] = stride;
    if (ADDED) part.inputs[ADDED] = residual, part.strides[ADDED] = n;
    part.hold(0, weight);
    if (CENTRED) part.hold(1, bias);
    float counts[EACH], own = 0;
    count_elements(counts, n);
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) own += part.has(piece) ? WIDE : 0;
    own = fmaxf(warp_sum(own), 1);
    for (part.begin(); part.row() < m; part.step(sums.taken())) {
        part.await();
        uint4 pieces[PIECES];
        float value[WIDE], first = 0, sum = 0, squares = 0, mean = 0;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            pieces[piece] = part.packed(0, piece);
            widen(value, pieces[piece]);
            if (ADDED) {
                float more[WIDE];
                part.read(more, ADDED, piece);
#pragma unroll
                for (int i = 0; i < WIDE; ++i) value[i] += more[i];
                part.write(total, piece, value);
                pieces[piece] = rounded(value);
                widen(value, pieces[piece]);
            }
            part.refill(piece);
            if (CENTRED && piece == 0) first = __shfl_sync(~0u, mean_of(value), 0);
#pragma unroll
            for (int i = 0; i < WIDE; ++i)
                if (part.has(piece)) {
                    const float off = value[i] - first;
                    squares += off * off;
                    if (CENTRED) sum += off;
                }
        }
        part.advance();
        squares = warp_sum(squares);
        if (CENTRED) sum = warp_sum(sum), mean = sum / own, squares -= mean * sum;
        sums.share<true>({first + mean, squares});
        sums.take(taken);
        squares = mean = 0;
        if (CENTRED) {
#pragma unroll
            for (int i = 0; i < EACH; ++i)
                if (sums.has(i)) mean += counts[i] * sums.get(i).a;
            mean = warp_sum(mean) / n;
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (sums.has(i)) {
                const float off = CENTRED ? sums.get(i).a - mean : 0;
                squares += sums.get(i).b + counts[i] * off * off;
            }
        const float scale = 1 / sqrtf(warp_sum(squares) / n + eps);
        if (KEPT && sums.leads()) {
            scales[part.row()] = scale;
            if (CENTRED) means[part.row()] = mean;
        }
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            float w[WIDE], b[WIDE];
            widen_again(value, pieces[piece]);
            part.read_vector(w, 0, piece);
            if (CENTRED) part.read_vector(b, 1, piece);
#pragma unroll
            for (int i = 0; i < WIDE; ++i) {
                w[i] = (value[i] - mean) * (scale * w[i]);
                if (CENTRED) w[i] += b[i];
            }
            part.write(y, piece, w);
        }
    }
    sums.finish(taken);
}

__device__ static void store_wide(float* to, const float (&values)[WIDE]) {
#pragma unroll
    for (int i = 0; i < WIDE; i += 4)
        *reinterpret_cast<float4*>(to + i) = {values[i], values[i + 1], values[i + 2], values[i + 3]};
}

// With u = (x - mean) scale and g = dy weight: dx = (g - u mean(g u) - mean g) scale, and each cluster's sums
// (1 + CENTRED, clusters, n) of dy u for dweight and of dy for dbias. With u in terms of x, dx is g scale + a x + b
// for an a and a b of the row.
extern "C" __global__ void __launch_bounds__(THREADS, PER_SM) CLUSTERED normalize_backward(
    const u16* x, const u16* weight, const u16* dy, const u16* dtotal, const float* means, const float* scales,
    u16* dx, float* results, u32 m, u32 n, u64 stride) {
    __shared__ Shared shared;
    Exchange sums{shared};
    auto part = part_of<2 + ADDED>(m, n);
    part.inputs[0] = x, part.strides[0] = stride, part.inputs[1] = dy, part.strides[1] = n;
    if (ADDED) part.inputs[1 + ADDED] = dtotal, part.strides[1 + ADDED] = n;
    part.hold(0, weight);
    float dweight[PIECES][WIDE] = {}, dbias[PIECES][WIDE] = {};
    float next_mean = 0, next_scale = 0;
    if (cluster() < m) next_scale = scales[cluster()], next_mean = CENTRED ? means[cluster()] : 0;
    for (part.begin(); part.row() < m; part.step(part.rows[DEPTH] + clusters())) {
        const float mean = next_mean, scale = next_scale;
        const u32 next = min(part.rows[1], m - 1);
        next_scale = scales[next], next_mean = CENTRED ? means[next] : 0;
        part.await();
        float unit[WIDE], grad[WIDE], w[WIDE], along = 0, sum = 0;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            part.read(unit, 0, piece), part.read(grad, 1, piece), part.read_vector(w, 0, piece);
#pragma unroll
            for (int i = 0; i < WIDE; ++i) {
                unit[i] = (unit[i] - mean) * scale;  // it must be 0 in a constant row, whose scale is large
                dweight[piece][i] += grad[i] * unit[i];
                if (CENTRED) dbias[piece][i] += grad[i];
                w[i] *= grad[i];
                along += w[i] * unit[i];
                sum += w[i];
            }
        }
        sums.share<false>({warp_sum(along), CENTRED ? warp_sum(sum) : 0});
        along = sum = 0;
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (sums.has(i)) along += sums.get(i).a, sum += sums.get(i).b;
        along = -warp_sum(along) / n * scale * scale;
        sum = CENTRED ? -warp_sum(sum) / n * scale - mean * along : 0;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            float more[WIDE] = {};
            part.read(unit, 0, piece), part.read(grad, 1, piece), part.read_vector(w, 0, piece);
            if (ADDED) part.read(more, 1 + ADDED, piece);
            part.refill(piece);
#pragma unroll
            for (int i = 0; i < WIDE; ++i) {
                unit[i] = unit[i] * along + (ADDED ? sum + more[i] : sum);
                more[i] = grad[i] * w[i] * scale + unit[i];
            }
            part.write(dx, piece, more);
        }
        part.advance();
    }
    let_next_start();
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece)
        if (part.has(piece)) {
            float* to = results + (u64)cluster() * n + part.at(piece);
            store_wide(to, dweight[piece]);
            if (CENTRED) store_wide(to + (u64)clusters() * n, dbias[piece]);
        }
}
