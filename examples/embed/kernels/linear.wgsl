// out[r, c] = bias[c] + sum over k of x[r, k] * weight[k, c], and GELU of it where `gelu` is set. Rows and columns may
// be any number; `inner` is a multiple of 4.
//
// A workgroup takes a tile of both through its memory, DEPTH vectors along k at a time: each word is loaded from the
// buffers once for all threads that need it. A thread makes 8 x 8 outputs in registers, 16 loads from the tile for 256
// multiplications.

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
// Columns of a workgroup, and the most rows that it has.
const TILE: u32 = 64u;
// Vectors along k that a tile holds.
const DEPTH: u32 = 4u;

// [row, k]: a thread of row r reads DEPTH vectors that lie side by side.
var<workgroup> x_tile: array<vec4<f32>, 256>;
// [k, column].
var<workgroup> weight_tile: array<vec4<f32>, 256>;

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
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let threads = COLUMN_LANES * row_lanes;
    let tile_rows = SIDE * row_lanes;
    let first_row = group.y * tile_rows;
    let first_column = group.x * TILE;
    let span = shape.inner / 4u;

    var sums: array<array<f32, SIDE>, SIDE>;
    for (var start = 0u; start < span; start = start + DEPTH) {
        // Past the end, the last row or column is taken again, and not stored; past the end of k lie zeros.
        for (var i = lane; i < tile_rows * DEPTH; i = i + threads) {
            let row = min(first_row + i / DEPTH, shape.rows - 1u);
            let k = start + i % DEPTH;
            x_tile[i] = select(vec4<f32>(), x[row * span + min(k, span - 1u)], k < span);
        }
        for (var i = lane; i < TILE * DEPTH; i = i + threads) {
            let column = min(first_column + i % TILE, shape.columns - 1u);
            let k = min(start + i / TILE, span - 1u);
            weight_tile[i] = weight[k * shape.columns + column];
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d = d + 1u) {
            var a: array<vec4<f32>, SIDE>;
            for (var r = 0u; r < SIDE; r = r + 1u) { a[r] = x_tile[(local.y + r * row_lanes) * DEPTH + d]; }
            for (var c = 0u; c < SIDE; c = c + 1u) {
                let b = weight_tile[d * TILE + local.x + c * COLUMN_LANES];
                for (var r = 0u; r < SIDE; r = r + 1u) {
                    sums[r][c] = fma(a[r].w, b.w, fma(a[r].z, b.z, fma(a[r].y, b.y, fma(a[r].x, b.x, sums[r][c]))));
                }
            }
        }
        workgroupBarrier();
    }

    let top = first_row + local.y;
    let left = first_column + local.x;
    for (var c = 0u; c < SIDE; c = c + 1u) {
        let column = left + c * COLUMN_LANES;
        if (column >= shape.columns) { break; }
        for (var r = 0u; r < SIDE; r = r + 1u) {
            let row = top + r * row_lanes;
            if (row < shape.rows) { out[row * shape.columns + column] = activate(sums[r][c] + bias[column]); }
        }
    }
}
