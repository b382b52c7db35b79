// Token ids to rows: word + position + type 0, then layer norm. One workgroup a token, sentences padded to `padded`.

var<immediate> padded: u32;
@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> words: array<f32>;
@group(0) @binding(2) var<storage, read> positions: array<f32>;
@group(0) @binding(3) var<storage, read> kinds: array<f32>;
@group(0) @binding(4) var<storage, read> gain: array<f32>;
@group(0) @binding(5) var<storage, read> offset: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let token = group.x;
    let word = ids[token] * width;
    let position = (token % padded) * width;
    for (var c = lane; c < width; c = c + LANES) { row[c] = words[word + c] + positions[position + c] + kinds[c]; }
    standardise(lane);
    for (var c = lane; c < width; c = c + LANES) { out[token * width + c] = row[c] * gain[c] + offset[c]; }
}
