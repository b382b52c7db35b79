// out[r, c] = bias[c] + sum over k of x[r, k] * weight[k, c], and GELU of it where `gelu` is set. Rows and columns may
// be any number; `inner` is a multiple of 4.
//
// A thread makes 8 x 8 outputs in registers and loads straight from the buffers: 16 vectors for 256 multiplications.
// The loads of a workgroup meet in the first cache, and coalesce because of how `weight` lies. A tile in workgroup
// memory would hold the same words; on lavapipe (Mesa 22.3), where that memory and its barriers are emulated, such a
// form with as many outputs a thread ran at two thirds of this one's speed.

struct Shape { rows: u32, columns: u32, inner: u32 }
var<immediate> shape: Shape;
// Row by row, each vector 4 neighbours along k.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
// Vector [k / 4, c] holds 4 neighbours along k, too: neighbouring columns, which neighbouring threads load, lie
// side by side.
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

// Threads of a workgroup down the rows: 8, or 2 where there are few rows.
override row_lanes: u32 = 8u;
override gelu: bool = false;
const COLUMN_LANES: u32 = 8u;
// Rows, and columns, of a thread. They lie `row_lanes` and COLUMN_LANES apart.
const SIDE: u32 = 8u;

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


@compute @workgroup_size(COLUMN_LANES, row_lanes)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let top = group.y * SIDE * row_lanes + local.y;
    let left = group.x * SIDE * COLUMN_LANES + local.x;
    let span = shape.inner / 4u;
    // Past the end, the last row or column is computed again, and not stored.
    var rows: array<u32, SIDE>;
    var columns: array<u32, SIDE>;
    for (var i = 0u; i < SIDE; i = i + 1u) {
        rows[i] = min(top + i * row_lanes, shape.rows - 1u) * span;
        columns[i] = min(left + i * COLUMN_LANES, shape.columns - 1u);
    }

    var sums: array<array<f32, SIDE>, SIDE>;
    for (var k = 0u; k < span; k = k + 1u) {
        var a: array<vec4<f32>, SIDE>;
        for (var r = 0u; r < SIDE; r = r + 1u) { a[r] = x[rows[r] + k]; }
        for (var c = 0u; c < SIDE; c = c + 1u) {
            let b = weight[columns[c] + k * shape.columns];
            for (var r = 0u; r < SIDE; r = r + 1u) {
                sums[r][c] = fma(a[r].w, b.w, fma(a[r].z, b.z, fma(a[r].y, b.y, fma(a[r].x, b.x, sums[r][c]))));
            }
        }
    }

    for (var c = 0u; c < SIDE; c = c + 1u) {
        let column = left + c * COLUMN_LANES;
        if (column >= shape.columns) { break; }
        for (var r = 0u; r < SIDE; r = r + 1u) {
            let row = top + r * row_lanes;
            if (row < shape.rows) { out[row * shape.columns + column] = activate(sums[r][c] + bias[column]); }
        }
    }
}
