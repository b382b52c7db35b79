//! The kernel that does arithmetic in registers.

use super::scalar::{MemoryModel, Scalar, begin};
use super::spirv::{Assembler, Id, Words, built_in, op};
use vkactor_actors::kernel::SpirvKernel;
use vkactor_actors::properties::ElemType;

/// Invocations of a workgroup: every device has that many.
pub(super) const GROUP: u32 = 128;
/// Independent chains of an invocation, of [`LANES`] each. Sixteen values hide the latency of a product and sum (four
/// cycles on NVIDIA, with one warp in flight), and fit the registers of every device.
const CHAINS: usize = 4;
const LANES: usize = 4;
/// Products with their sums in a turn of the loop, for each chain. The three instructions of the loop itself are a
/// hundredth beside them.
const ROUNDS: usize = 16;
/// Operations of one invocation in a turn.
pub(super) const OPERATIONS: u32 = (CHAINS * LANES * ROUNDS) as u32 * 2;

/// What a launch is told: turns, and the factor and the addend of each product and sum, as `f32` or words. The
/// compiler does not know them, so it cannot put several steps into one.
pub(super) type Parameters = [u32; 3];

/// The kernel for a type; `None` for what is no number. Each value begins as a small number of its own (two that
/// begin alike would be computed once), is multiplied and added to in each round, and goes into the sum that the
/// invocation stores as a word at its place in the buffer.
pub(super) fn kernel(elem: ElemType) -> Option<SpirvKernel> {
    Some(SpirvKernel::new(format!("throughput arithmetic {elem:?}"), module(Scalar::of(elem)?)))
}

fn module(scalar: Scalar) -> Vec<u32> {
    let mut module = Assembler::new();
    begin(&mut module, MemoryModel::Glsl450);
    let glsl = module.import("GLSL.std.450");
    let words = Words::new(&mut module);
    let ty = scalar.declare(&mut module);
    let vector = module.declare(op::TYPE_VECTOR, &[ty, LANES as u32]);
    let given = scalar.parameter(&mut module, words);
    let parameters = module.parameters(&[words.word, given, given]);
    let buffer = module.buffer(words.word, 4);
    let ids = module.declare(op::TYPE_VECTOR, &[words.word, 3]);
    let invocation = module.built_in(ids, built_in::GLOBAL_INVOCATION_ID);
    let two = module.constant(words.word, 2);
    let few = module.constant(words.word, STARTS - 1);

    let main = module.begin_main();
    let turns = module.parameter(parameters, words.word, words.zero);
    let [factor, addend] = [words.one, two].map(|index| {
        let parameter = module.parameter(parameters, given, index);
        let value = scalar.widen(&mut module, ty, parameter);
        module.value(op::COMPOSITE_CONSTRUCT, vector, &[value; LANES])
    });
    let place = module.value(op::LOAD, ids, &[invocation]);
    let place = module.value(op::COMPOSITE_EXTRACT, words.word, &[place, 0]);
    let first = module.value(op::BITWISE_AND, words.word, &[place, few]);
    let first = scalar.convert(&mut module, ty, first);
    let one = scalar.convert(&mut module, ty, words.one);
    let starts = module.ladder(scalar.sum(), ty, first, one, CHAINS * LANES);
    let vectors = starts.chunks_exact(LANES).map(|lanes| module.value(op::COMPOSITE_CONSTRUCT, vector, lanes));
    let starts: Vec<(Id, Id)> = vectors.map(|start| (vector, start)).collect();
    let chains = module.repeat(turns, words, &starts, |module, chains| {
        let mut chains = chains.to_vec();
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = if scalar.float {
                    module.value(op::EXT_INST, vector, &[glsl, FMA, *chain, factor, addend])
                } else {
                    let product = module.value(op::IMUL, vector, &[*chain, factor]);
                    module.value(op::IADD, vector, &[product, addend])
                };
            }
        }
        chains
    });
    let sum = module.fold(scalar.sum(), vector, &chains);
    let lanes = (0..LANES as u32).map(|lane| module.value(op::COMPOSITE_EXTRACT, ty, &[sum, lane]));
    let lanes: Vec<Id> = lanes.collect();
    let sum = module.fold(scalar.sum(), ty, &lanes);
    let word = scalar.word(&mut module, words, sum);
    let to = module.element(buffer, words.word, words.zero, place);
    module.effect(op::STORE, &[to, word]);
    module.finish(main, &[parameters, buffer, invocation], GROUP)
}

/// Values that invocations begin with: a power of two, and small enough for eight bits with all chains on top.
const STARTS: u32 = 64;
/// The fused product and sum of `GLSL.std.450`.
const FMA: u32 = 50;
