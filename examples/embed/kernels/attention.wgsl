// Softmax attention over one head. A workgroup takes 64 queries of one sentence, a thread one of them; the keys come
// by in tiles, and the softmax is kept up as they do, so that the scores are never stored.
//
// A row of `qkv` is query, key and value side by side, `width` numbers each; head h has numbers 32 h to 32 h + 31.

var<immediate> padded: u32;
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> lengths: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

override width: u32;
const LANES: u32 = 64u;
// Keys in a tile.
const KEYS: u32 = 32u;
// Vectors of 4 in a head of 32 numbers.
const HEAD: u32 = 8u;
// 1 / sqrt(32)
const SCALE: f32 = 0.17677669529663687;

var<workgroup> keys: array<vec4<f32>, KEYS * HEAD>;
var<workgroup> values: array<vec4<f32>, KEYS * HEAD>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let span = width / 4u;
    let head = group.y * HEAD;
    let first = group.z * padded;
    // Padding is never a key. As a query it is computed like the rest: nobody looks at the result.
    let length = lengths[group.z];
    let query = group.x * LANES + lane;
    let asks = query < padded;

    var q: array<vec4<f32>, HEAD>;
    var sum: array<vec4<f32>, HEAD>;
    for (var d = 0u; d < HEAD; d = d + 1u) {
        if (asks) { q[d] = qkv[(first + query) * 3u * span + head + d] * SCALE; }
    }
    // Below any score; not infinity, whose difference with itself is NaN.
    var peak = -3.0e38;
    var total = 0.0;

    for (var start = 0u; start < length; start = start + KEYS) {
        let count = min(KEYS, length - start);
        for (var i = lane; i < count * HEAD; i = i + LANES) {
            let at = (first + start + i / HEAD) * 3u * span + head + i % HEAD;
            keys[i] = qkv[at + span];
            values[i] = qkv[at + 2u * span];
        }
        workgroupBarrier();
        for (var key = 0u; key < count; key = key + 1u) {
            var score = 0.0;
            for (var d = 0u; d < HEAD; d = d + 1u) { score = score + dot(q[d], keys[key * HEAD + d]); }
            let higher = max(peak, score);
            let keep = exp(peak - higher);
            let share = exp(score - higher);
            total = total * keep + share;
            for (var d = 0u; d < HEAD; d = d + 1u) { sum[d] = sum[d] * keep + values[key * HEAD + d] * share; }
            peak = higher;
        }
        workgroupBarrier();
    }
    if (asks) {
        for (var d = 0u; d < HEAD; d = d + 1u) { out[(first + query) * span + head + d] = sum[d] / total; }
    }
}
