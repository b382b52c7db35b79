//! Many tiny tensors: scalars, biases, counts and indices, of which some stay.

use super::{Device, Program, Tensor, Trace};

/// Grows to many, replaces each some times, falls to a tenth, and grows again with other sizes.
pub(super) fn trace(device: Device) -> Trace {
    let count = match device {
        Device::Small => 50_000,
        Device::Large => 150_000,
    };
    let mut program = Program::new();
    let mut live: Vec<Tensor> = Vec::new();
    for (most, churn) in [(2 << 10, 2), (16 << 10, 1)] {
        while live.len() < count {
            let bytes = program.log_uniform(4, most);
            live.push(program.reserve(bytes));
        }
        for _ in 0..churn * count {
            let at = program.below(live.len() as u64) as usize;
            let old = live.swap_remove(at);
            program.release(old);
            let bytes = program.log_uniform(4, most);
            live.push(program.reserve(bytes));
        }
        while live.len() > count / 10 {
            let at = program.below(live.len() as u64) as usize;
            let old = live.swap_remove(at);
            program.release(old);
        }
    }
    program.end("many tiny tensors")
}
