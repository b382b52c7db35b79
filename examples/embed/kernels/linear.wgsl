// out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k], and GELU of it where `gelu` is set. Any sizes.
//
// A workgroup makes a tile of 4 row_lanes x 64 outputs, a thread 4 x 4 of them. Rows and columns of a thread lie
// `row_lanes` and COLUMN_LANES apart, so that neighbouring threads store to neighbouring columns.

struct Shape { rows: u32, columns: u32, inner: u32 }
var<immediate> shape: Shape;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

// 16 for tiles of 64 rows, 4 for tiles of 16: few rows are spread over more groups. Not more than 16.
override row_lanes: u32 = 16u;
override gelu: bool = false;
const COLUMN_LANES: u32 = 16u;
// How much of the inner dimension a tile holds at a time.
const STEP: u32 = 16u;
// One more than the 16 entries in use: the stores of neighbouring threads, one k apart, fall on different banks.
const PITCH: u32 = 17u;

// Entry [k, lane]: the four rows (or columns) of that lane, at inner index k.
var<workgroup> x_tile: array<vec4<f32>, STEP * PITCH>;
var<workgroup> weight_tile: array<vec4<f32>, STEP * PITCH>;

fn x_at(r: u32, k: u32) -> f32 {
    if (r < shape.rows && k < shape.inner) { return x[r * shape.inner + k]; }
    return 0.0;
}

fn weight_at(c: u32, k: u32) -> f32 {
    if (c < shape.columns && k < shape.inner) { return weight[c * shape.inner + k]; }
    return 0.0;
}

// 1 - erf(z) for z >= 0: Abramowitz and Stegun 7.1.26, off by at most 1.5e-7.
fn erfc(z: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let tail = -1.453152027 + t * 1.061405429;
    return t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * tail))) * exp(-z * z);
}

fn activate(value: f32) -> f32 {
    if (!gelu) { return value; }
    // value * (1 + erf(value / sqrt 2)) / 2, put so that nothing cancels on the negative side.
    let size = abs(value);
    return max(value, 0.0) - 0.5 * size * erfc(size * 0.7071067811865476);
}

fn store(r: u32, c: u32, value: f32) {
    if (r < shape.rows && c < shape.columns) { out[r * shape.columns + c] = activate(value + bias[c]); }
}

fn store_row(r: u32, c: u32, values: vec4<f32>) {
    store(r, c, values.x);
    store(r, c + COLUMN_LANES, values.y);
    store(r, c + 2u * COLUMN_LANES, values.z);
    store(r, c + 3u * COLUMN_LANES, values.w);
}

@compute @workgroup_size(COLUMN_LANES, row_lanes)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let top = group.y * 4u * row_lanes;
    let left = group.x * 4u * COLUMN_LANES;
    var row0 = vec4<f32>();
    var row1 = vec4<f32>();
    var row2 = vec4<f32>();
    var row3 = vec4<f32>();
    for (var start = 0u; start < shape.inner; start = start + STEP) {
        // For the loads, local.x is the inner index: neighbouring threads load neighbouring words.
        let k = start + local.x;
        let r = top + local.y;
        x_tile[local.x * PITCH + local.y] =
            vec4<f32>(x_at(r, k), x_at(r + row_lanes, k), x_at(r + 2u * row_lanes, k), x_at(r + 3u * row_lanes, k));
        for (var lane = local.y; lane < COLUMN_LANES; lane = lane + row_lanes) {
            let c = left + lane;
            weight_tile[local.x * PITCH + lane] = vec4<f32>(
                weight_at(c, k),
                weight_at(c + COLUMN_LANES, k),
                weight_at(c + 2u * COLUMN_LANES, k),
                weight_at(c + 3u * COLUMN_LANES, k),
            );
        }
        workgroupBarrier();
        for (var i = 0u; i < STEP; i = i + 1u) {
            let a = x_tile[i * PITCH + local.y];
            let b = weight_tile[i * PITCH + local.x];
            row0 = row0 + a.x * b;
            row1 = row1 + a.y * b;
            row2 = row2 + a.z * b;
            row3 = row3 + a.w * b;
        }
        workgroupBarrier();
    }
    let r = top + local.y;
    let c = left + local.x;
    store_row(r, c, row0);
    store_row(r + row_lanes, c, row1);
    store_row(r + 2u * row_lanes, c, row2);
    store_row(r + 3u * row_lanes, c, row3);
}
