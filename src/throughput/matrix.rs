//! The kernel that multiplies on the matrix units.

use super::scalar::{MemoryModel, Scalar, begin};
use super::spirv::{Assembler, Id, Words, built_in, capability, op};
use vkactor_actors::kernel::SpirvKernel;
use vkactor_actors::properties::MatrixShape;

/// Subgroups of a workgroup: one for each scheduler of a core of the large GPUs.
pub(super) const SUBGROUPS: u32 = 4;
/// Products of one subgroup in a launch, over all its tiles. A workgroup then takes some tenths of a millisecond.
pub(super) const PRODUCTS: u32 = 1 << 15;
/// Products of each tile in a turn of the loop.
const ROUNDS: u32 = 4;
/// Rows and columns of tiles that a subgroup keeps, to be tried: many hide the latency of the unit, few leave room for
/// more subgroups. Sixteen tiles of 16 by 16 f32 and their operands take 160 registers of an invocation of 32.
pub(super) const TILES: [[u32; 2]; 3] = [[4, 4], [2, 4], [2, 2]];

/// What a launch is told: turns, and a number of which the operands are multiples, as `f32` or a word.
pub(super) type Parameters = [u32; 2];

/// Turns of the loop that make [`PRODUCTS`].
pub(super) fn turns(tiles: [u32; 2]) -> u32 {
    PRODUCTS / (tiles[0] * tiles[1] * ROUNDS)
}

/// The kernel for a shape; `None` where it has types that are no numbers.
///
/// Each subgroup keeps `tiles` sums of m by n. Operands stay in registers, one `a` for each row of tiles and one `b`
/// for each column; each has one value in all its elements, and no two the same, so that no two sums are. Each round
/// adds a product to each sum. In the end the sums are added and stored at the subgroup's place in the buffer.
pub(super) fn kernel(shape: &MatrixShape, tiles: [u32; 2], subgroup_size: u32) -> Option<SpirvKernel> {
    let MatrixShape { m, n, k, a, b, c } = *shape;
    let scalars = [Scalar::of(a)?, Scalar::of(b)?, Scalar::of(c)?];
    let [rows, columns] = tiles;
    let name = format!("throughput matrix {m} × {n} × {k} {a:?} {c:?}, {rows} by {columns} tiles");
    Some(SpirvKernel::new(name, module(shape, scalars, tiles, subgroup_size)))
}

fn module(shape: &MatrixShape, scalars: [Scalar; 3], tiles: [u32; 2], subgroup_size: u32) -> Vec<u32> {
    let MatrixShape { m, n, k, .. } = *shape;
    let [a, b, c] = scalars;
    let mut module = Assembler::new();
    begin(&mut module, MemoryModel::Vulkan);
    module.capability(capability::VULKAN_MEMORY_MODEL);
    module.capability(capability::GROUP_NON_UNIFORM);
    module.capability(capability::COOPERATIVE_MATRIX);
    module.extension("SPV_KHR_cooperative_matrix");
    let words = Words::new(&mut module);
    let [ta, tb, tc] = [a, b, c].map(|scalar| scalar.declare(&mut module));
    c.stored(&mut module);
    let [m_, n_, k_, size, subgroups, scope] =
        [m, n, k, m * n, SUBGROUPS, SCOPE_SUBGROUP].map(|value| module.constant(words.word, value));
    let [a_use, b_use, c_use] = [0, 1, 2].map(|usage| module.constant(words.word, usage));
    let a_matrix = module.declare(op::TYPE_COOPERATIVE_MATRIX, &[ta, scope, m_, k_, a_use]);
    let b_matrix = module.declare(op::TYPE_COOPERATIVE_MATRIX, &[tb, scope, k_, n_, b_use]);
    let c_matrix = module.declare(op::TYPE_COOPERATIVE_MATRIX, &[tc, scope, m_, n_, c_use]);
    let given = a.parameter(&mut module, words);
    let parameters = module.parameters(&[words.word, given]);
    let buffer = module.buffer(tc, c.bits / 8);
    let ids = module.declare(op::TYPE_VECTOR, &[words.word, 3]);
    let group = module.built_in(ids, built_in::WORKGROUP_ID);
    let subgroup = module.built_in(words.word, built_in::SUBGROUP_ID);
    let zero = module.global(op::CONSTANT_NULL, tc, &[]);
    let zero = module.global(op::CONSTANT_COMPOSITE, c_matrix, &[zero]);

    let main = module.begin_main();
    let turns = module.parameter(parameters, words.word, words.zero);
    let unit = module.parameter(parameters, given, words.one);
    let [rows, columns] = [(a, ta, a_matrix, tiles[0]), (b, tb, b_matrix, tiles[1])].map(|(of, ty, matrix, count)| {
        let unit = of.widen(&mut module, ty, unit);
        let multiples = module.ladder(of.sum(), ty, unit, unit, count as usize);
        let matrices = multiples.into_iter().map(|value| module.value(op::COMPOSITE_CONSTRUCT, matrix, &[value]));
        matrices.collect::<Vec<Id>>()
    });
    let sums = vec![(c_matrix, zero); rows.len() * columns.len()];
    let signs = signs(scalars);
    let sums = module.repeat(turns, words, &sums, |module, sums| {
        let mut sums = sums.to_vec();
        for _ in 0..ROUNDS {
            let operands = rows.iter().flat_map(|a| columns.iter().map(move |b| (*a, *b)));
            for (sum, (a, b)) in sums.iter_mut().zip(operands) {
                let operands = [&[a, b, *sum], &signs[..]].concat();
                *sum = module.value(op::COOPERATIVE_MATRIX_MUL_ADD, c_matrix, &operands);
            }
        }
        sums
    });
    let sum = module.fold(c.sum(), c_matrix, &sums);
    let group_id = module.value(op::LOAD, ids, &[group]);
    let group_id = module.value(op::COMPOSITE_EXTRACT, words.word, &[group_id, 0]);
    let subgroup_id = module.value(op::LOAD, words.word, &[subgroup]);
    let place = module.value(op::IMUL, words.word, &[group_id, subgroups]);
    let place = module.value(op::IADD, words.word, &[place, subgroup_id]);
    let place = module.value(op::IMUL, words.word, &[place, size]);
    let to = module.element(buffer, tc, words.zero, place);
    module.effect(op::COOPERATIVE_MATRIX_STORE, &[to, sum, words.zero, n_]);
    module.finish(main, &[parameters, buffer, group, subgroup], SUBGROUPS * subgroup_size)
}

/// Which matrices hold signed integers, as an operand of the product; floats say nothing.
fn signs([a, b, c]: [Scalar; 3]) -> Vec<u32> {
    let signed = |of: Scalar, bits: u32| if of.signed && !of.float { bits } else { 0 };
    let signs = signed(a, 0b1) | signed(b, 0b10) | signed(c, 0b1100);
    if signs == 0 { Vec::new() } else { vec![signs] }
}

const SCOPE_SUBGROUP: u32 = 3;
