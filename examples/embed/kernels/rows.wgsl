// One workgroup holds one row of `width` numbers. Put in front of the kernels that need it.

const LANES: u32 = 64u;
override width: u32;
override epsilon: f32;

// Lane l touches only elements l, l + LANES, l + 2 LANES and so on, so that the row itself needs no barrier.
var<workgroup> row: array<f32, width>;
var<workgroup> partial: array<f32, LANES>;

// The sum of one number of each lane, for all lanes.
fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    partial[lane] = value;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half = half / 2u) {
        if (lane < half) { partial[lane] = partial[lane] + partial[lane + half]; }
        workgroupBarrier();
    }
    let sum = partial[0];
    // The next call writes over what a slow lane may still have to read.
    workgroupBarrier();
    return sum;
}

// Shifts and scales the row to mean 0 and variance 1. Two passes: the mean of squares less the square of the mean
// would cancel.
fn standardise(lane: u32) {
    var sum = 0.0;
    for (var c = lane; c < width; c = c + LANES) { sum = sum + row[c]; }
    let mean = sum_over_lanes(lane, sum) / f32(width);
    var squares = 0.0;
    for (var c = lane; c < width; c = c + LANES) {
        let centred = row[c] - mean;
        squares = squares + centred * centred;
    }
    let scale = inverseSqrt(sum_over_lanes(lane, squares) / f32(width) + epsilon);
    for (var c = lane; c < width; c = c + LANES) { row[c] = (row[c] - mean) * scale; }
}
