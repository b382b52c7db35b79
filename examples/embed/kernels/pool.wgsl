// The mean of a sentence's token rows, scaled to length 1. One workgroup a sentence; padding does not count.

var<immediate> padded: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> lengths: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let sentence = group.x;
    let length = lengths[sentence];
    var squares = 0.0;
    for (var c = lane; c < width; c = c + LANES) {
        var sum = 0.0;
        for (var t = 0u; t < length; t = t + 1u) { sum = sum + x[(sentence * padded + t) * width + c]; }
        let mean = sum / f32(length);
        row[c] = mean;
        squares = squares + mean * mean;
    }
    // Not below `epsilon`: a mean of zeros stays so, instead of becoming NaN.
    let scale = 1.0 / max(sqrt(sum_over_lanes(lane, squares)), epsilon);
    for (var c = lane; c < width; c = c + LANES) { out[sentence * width + c] = row[c] * scale; }
}
