// out = layer norm of x + residual. One workgroup a row.

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> residual: array<f32>;
@group(0) @binding(2) var<storage, read> gain: array<f32>;
@group(0) @binding(3) var<storage, read> offset: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = group.x * width;
    for (var c = lane; c < width; c = c + LANES) { row[c] = x[start + c] + residual[start + c]; }
    standardise(lane);
    for (var c = lane; c < width; c = c + LANES) { out[start + c] = row[c] * gain[c] + offset[c]; }
}
