//! SPIR-V kernels, put together word by word.

use vkactor_actors::kernel::BufferAccess::{self, Read, ReadWrite, Write};
use vkactor_actors::kernel::KernelOptions;

use super::*;

// Ids of the module that `Assembly::new` starts.
const MAIN: u32 = 1;
const VOID: u32 = 2;
const SIGNATURE: u32 = 3;
const U32: u32 = 4;
const ZERO: u32 = 5;
const ONE: u32 = 6;
const WORDS: u32 = 7;
const BUFFER: u32 = 8;
const TO_BUFFER: u32 = 9;
const TO_WORD: u32 = 10;
const BLOCK: u32 = 11;
const TO_BLOCK: u32 = 12;
const TO_PARAMETER: u32 = 13;
const FACTOR: u32 = 14;
const LABEL: u32 = 15;
/// First id for the tests' own use; `D` and `P` are buffer and parameters.
const D: u32 = 20;
const P: u32 = 21;
const FREE: u32 = 30;

const STORAGE_BUFFER: u32 = 12;
const PUSH_CONSTANT: u32 = 9;
const WORKGROUP: u32 = 4;

/// A module by its parts, in the order that the specification asks for.
#[derive(Clone)]
struct Assembly {
    version: u32,
    head: Vec<u32>,
    modes: Vec<u32>,
    decorations: Vec<u32>,
    declarations: Vec<u32>,
    body: Vec<u32>,
}

fn line(op: u32, operands: &[u32]) -> Vec<u32> {
    let mut words = vec![(operands.len() as u32 + 1) << 16 | op];
    words.extend(operands);
    words
}

impl Assembly {
    /// Types and constants, a workgroup of 64, and a main function without code.
    fn new() -> Self {
        let main = [5, MAIN, u32::from_le_bytes(*b"main"), 0];
        let mut new = Self {
            version: 0x1_0300,
            head: [line(17, &[1]), line(14, &[0, 1]), line(15, &main)].concat(),
            modes: line(16, &[MAIN, 17, 64, 1, 1]),
            decorations: Vec::new(),
            declarations: Vec::new(),
            body: Vec::new(),
        };
        for operands in [&[WORDS, 6, 4][..], &[BUFFER, 2], &[BLOCK, 2], &[FACTOR, 1, 7]] {
            new.decorate(operands);
        }
        new.decorate_member(&[BUFFER, 0, 35, 0]);
        new.decorate_member(&[BLOCK, 0, 35, 0]);
        for (op, operands) in [
            (19, &[VOID][..]),
            (33, &[SIGNATURE, VOID]),
            (21, &[U32, 32, 0]),
            (43, &[U32, ZERO, 0]),
            (43, &[U32, ONE, 1]),
            (50, &[U32, FACTOR, 1]),
            (29, &[WORDS, U32]),
            (30, &[BUFFER, WORDS]),
            (32, &[TO_BUFFER, STORAGE_BUFFER, BUFFER]),
            (32, &[TO_WORD, STORAGE_BUFFER, U32]),
            (30, &[BLOCK, U32]),
            (32, &[TO_BLOCK, PUSH_CONSTANT, BLOCK]),
            (32, &[TO_PARAMETER, PUSH_CONSTANT, U32]),
        ] {
            new.declare(op, operands);
        }
        new
    }

    /// `d[0] += factor * p`, where the factor is constant 7.
    fn step() -> Self {
        let mut new = Self::new();
        new.buffer(D, 0, 0);
        new.declare(59, &[TO_BLOCK, P, PUSH_CONSTANT]);
        new.code(65, &[TO_PARAMETER, 40, P, ZERO]).code(61, &[U32, 41, 40]).code(132, &[U32, 42, 41, FACTOR]);
        new.code(65, &[TO_WORD, 43, D, ZERO, ZERO]).code(61, &[U32, 44, 43]).code(128, &[U32, 45, 44, 42]);
        new.code(62, &[43, 45]);
        new
    }

    fn decorate(&mut self, operands: &[u32]) -> &mut Self {
        self.decorations.extend(line(71, operands));
        self
    }

    fn decorate_member(&mut self, operands: &[u32]) -> &mut Self {
        self.decorations.extend(line(72, operands));
        self
    }

    fn declare(&mut self, op: u32, operands: &[u32]) -> &mut Self {
        self.declarations.extend(line(op, operands));
        self
    }

    fn code(&mut self, op: u32, operands: &[u32]) -> &mut Self {
        self.body.extend(line(op, operands));
        self
    }

    /// A variable for a buffer.
    fn buffer(&mut self, id: u32, set: u32, binding: u32) -> &mut Self {
        self.decorate(&[id, 34, set]).decorate(&[id, 33, binding]).declare(59, &[TO_BUFFER, id, STORAGE_BUFFER])
    }

    /// Stores to the first word of a buffer, by way of `chain`, which is a fresh id.
    fn store(&mut self, buffer: u32, chain: u32) -> &mut Self {
        self.code(65, &[TO_WORD, chain, buffer, ZERO, ZERO]).code(62, &[chain, ONE])
    }

    /// Loads the first word of a buffer, by way of `chain` and the id after it.
    fn load(&mut self, buffer: u32, chain: u32) -> &mut Self {
        self.code(65, &[TO_WORD, chain, buffer, ZERO, ZERO]).code(61, &[U32, chain + 1, chain])
    }

    fn words(&self) -> Vec<u32> {
        let start = [line(54, &[VOID, MAIN, 0, SIGNATURE]), line(248, &[LABEL])].concat();
        let end = [line(253, &[]), line(56, &[])].concat();
        let header = vec![0x0723_0203, self.version, 0, 200, 0];
        [&header, &self.head, &self.modes, &self.decorations, &self.declarations, &start, &self.body, &end]
            .map(Vec::as_slice)
            .concat()
    }

    fn translate(&self, options: &KernelOptions) -> Result<Shader, LaunchError> {
        translate("k", spirv_source(&self.words(), "main"), options, &rich())
    }

    fn compile(&self) -> Result<Shader, LaunchError> {
        self.translate(&KernelOptions::default())
    }

    /// Compiles what is valid also to others.
    fn valid(&self) -> Shader {
        let words = self.words();
        validate(&words, if self.version >= 0x1_0600 { (1, 6) } else { (1, 3) });
        let shader = self.compile().expect("compiles");
        assert_eq!(shader.words, words, "the words go through as they are");
        shader
    }
}

fn specialize(values: &[(u32, u32)]) -> KernelOptions {
    KernelOptions { specialization: values.to_vec(), ..KernelOptions::default() }
}

fn by_address(accesses: &[BufferAccess]) -> KernelOptions {
    KernelOptions { addresses: Some(accesses.to_vec()), ..KernelOptions::default() }
}

// ---------------------------------------------------------------------------------------------- what is reflected

#[test]
fn buffers_parameters_and_constants_are_found() {
    let shader = Assembly::step().valid();
    assert_eq!((shader.bindings, shader.access), (vec![0], vec![ReadWrite]));
    assert_eq!((shader.info_bytes, shader.address_count, shader.workgroup), (4, 0, [64, 1, 1]));
    let shader = Assembly::step().translate(&specialize(&[(7, 3)])).expect("compiles");
    assert_eq!(shader.specialization, [(7, 3)]);
}

#[test]
fn each_instruction_tells_what_it_does() {
    type Case = (&'static str, fn(&mut Assembly), &'static [BufferAccess]);
    let cases: [Case; 9] = [
        ("nothing", |_| {}, &[]),
        ("load", |a| _ = a.load(D, 40), &[Read]),
        ("store", |a| _ = a.store(D, 40), &[Write]),
        ("both", |a| _ = a.load(D, 40).store(D, 42), &[ReadWrite]),
        ("length", |a| _ = a.code(68, &[U32, 40, D, 0]), &[Read]),
        (
            "atomic add",
            |a| _ = a.code(65, &[TO_WORD, 40, D, ZERO, ZERO]).code(234, &[U32, 41, 40, ONE, ZERO, ONE]),
            &[ReadWrite],
        ),
        (
            "atomic load",
            |a| _ = a.code(65, &[TO_WORD, 40, D, ZERO, ZERO]).code(227, &[U32, 41, 40, ONE, ZERO]),
            &[Read],
        ),
        ("atomic store", |a| _ = a.code(65, &[TO_WORD, 40, D, ZERO, ZERO]).code(228, &[40, ONE, ZERO, ONE]), &[Write]),
        ("copied pointer", |a| _ = a.code(83, &[TO_BUFFER, 50, D]).store(50, 40), &[Write]),
    ];
    for (what, add, access) in cases {
        let mut module = Assembly::new();
        module.buffer(D, 0, 3);
        add(&mut module);
        let shader = module.valid();
        assert_eq!(shader.access, access, "{what}");
        assert_eq!(shader.bindings, vec![3; access.len()], "{what}");
    }
}

#[test]
fn a_copy_between_buffers_reads_one_and_writes_the_other() {
    let mut module = Assembly::new();
    module.buffer(D, 0, 4).buffer(FREE, 0, 1);
    module.code(65, &[TO_WORD, 40, D, ZERO, ZERO]).code(65, &[TO_WORD, 41, FREE, ZERO, ZERO]).code(63, &[40, 41]);
    let shader = module.valid();
    assert_eq!((shader.bindings, shader.access), (vec![1, 4], vec![Read, Write]));
}

#[test]
fn a_pointer_that_cannot_be_followed_is_loaded_and_stored() {
    // A choice between two pointers, which needs variable pointers.
    let mut module = Assembly::new();
    module.head.splice(0..0, line(17, &[4441]));
    module.buffer(D, 0, 0).buffer(FREE, 0, 1).declare(20, &[31]).declare(41, &[31, 32]);
    module.code(65, &[TO_WORD, 40, D, ZERO, ZERO]).code(65, &[TO_WORD, 41, FREE, ZERO, ZERO]);
    module.code(169, &[TO_WORD, 42, 32, 40, 41]).code(61, &[U32, 43, 42]);
    assert_eq!(module.valid().access, [ReadWrite; 2]);
}

#[test]
fn numbers_that_look_like_a_variable_are_no_use_of_it() {
    let mut module = Assembly::new();
    module.buffer(D, 0, 0).declare(23, &[31, U32, 4]);
    // A vector of four words, and a component of it that has the number of the buffer.
    module.code(80, &[31, 33, ONE, ONE, ONE, ONE]).code(81, &[U32, 34, 33, D]);
    assert_eq!(module.compile().expect("compiles").bindings, Vec::<u32>::new());
}

#[test]
fn functions_that_are_called_count_and_others_do_not() {
    let with_call = |called: bool| {
        let mut module = Assembly::new();
        module.buffer(D, 0, 0).buffer(FREE, 0, 1);
        if called {
            module.code(57, &[VOID, 60, 50]);
        }
        module.load(FREE, 40);
        let other = [
            line(54, &[VOID, 50, 0, SIGNATURE]),
            line(248, &[51]),
            line(65, &[TO_WORD, 52, D, ZERO, ZERO]),
            line(62, &[52, ONE]),
            line(253, &[]),
            line(56, &[]),
        ];
        let words = [module.words(), other.concat()].concat();
        validate(&words, (1, 3));
        translate("k", spirv_source(&words, "main"), &KernelOptions::default(), &rich()).expect("compiles")
    };
    assert_eq!(with_call(true).access, [Write, Read]);
    assert_eq!(with_call(false).bindings, [1]);
}

#[test]
fn declared_accesses_narrow_what_the_code_shows() {
    // `NonWritable` on the variable, or on all members.
    for on_member in [false, true] {
        let mut module = Assembly::new();
        module.buffer(D, 0, 0).load(D, 40);
        if on_member {
            module.decorate_member(&[BUFFER, 0, 24]);
        } else {
            module.decorate(&[D, 24]);
        }
        module.code(57, &[VOID, 60, 50, D]);
        let takes_it = [line(33, &[61, VOID, TO_BUFFER])].concat();
        module.declarations.extend(takes_it);
        let function =
            [line(54, &[VOID, 50, 0, 61]), line(55, &[TO_BUFFER, 52]), line(248, &[51]), line(253, &[]), line(56, &[])];
        let words = [module.words(), function.concat()].concat();
        let shader = translate("k", spirv_source(&words, "main"), &KernelOptions::default(), &rich());
        assert_eq!(shader.expect("compiles").access, [Read]);
    }
}

#[test]
fn buffer_blocks_of_old_modules_are_buffers() {
    let mut module = Assembly::new();
    module.version = 0x1_0000;
    module.decorate(&[40, 3]).decorate_member(&[40, 0, 35, 0]);
    module.declare(30, &[40, WORDS]).declare(32, &[41, 2, 40]).declare(32, &[42, 2, U32]).declare(59, &[41, D, 2]);
    module.decorate(&[D, 34, 0]).decorate(&[D, 33, 9]);
    module.code(65, &[42, 43, D, ZERO, ZERO]).code(62, &[43, ONE]);
    // The storage class of the assembly's own types came later.
    let shader = module.compile().expect("compiles");
    assert_eq!((shader.bindings, shader.access), (vec![9], vec![Write]));
}

#[test]
fn two_variables_of_one_binding_are_one_buffer() {
    let mut module = Assembly::new();
    module.buffer(D, 0, 2).buffer(FREE, 0, 2).load(D, 40).store(FREE, 43);
    for id in [D, FREE] {
        module.decorate(&[id, 20]);
    }
    let shader = module.valid();
    assert_eq!((shader.bindings, shader.access), (vec![2], vec![ReadWrite]));
}

#[test]
fn decoration_groups_are_applied() {
    let mut module = Assembly::new();
    module.decorate(&[40, 34, 0]).decorate(&[40, 33, 6]);
    module.decorations.extend([line(73, &[40]), line(74, &[40, D])].concat());
    module.declare(59, &[TO_BUFFER, D, STORAGE_BUFFER]).store(D, 41);
    assert_eq!(module.valid().bindings, [6]);
}

#[test]
fn sizes_of_workgroups_come_from_wherever_they_are_given() {
    let mut module = Assembly::new();
    assert_eq!(module.valid().workgroup, [64, 1, 1]);
    // By constants, of which one is specialized and one computed from it.
    module.declare(52, &[U32, 40, 132, FACTOR, FACTOR]);
    let mut by_id = module.clone();
    by_id.version = 0x1_0600;
    by_id.modes = line(331, &[MAIN, 38, FACTOR, 40, ONE]);
    by_id.valid();
    let shader = by_id.translate(&specialize(&[(7, 8)])).expect("compiles");
    assert_eq!(shader.workgroup, [8, 64, 1]);
    // By the built-in, which goes before the mode.
    module.decorate(&[42, 11, 25]).declare(23, &[41, U32, 3]).declare(51, &[41, 42, FACTOR, ONE, 40]);
    module.valid();
    let shader = module.translate(&specialize(&[(7, 4)])).expect("compiles");
    assert_eq!(shader.workgroup, [4, 1, 16]);
    let huge = module.translate(&specialize(&[(7, 2000)]));
    assert_eq!(exceeds(huge).0, "invocations of a workgroup");
}

#[test]
fn parameter_blocks_have_the_size_of_their_last_member() {
    let sized = |members: &[(u32, u32)], add: fn(&mut Assembly)| {
        let mut module = Assembly::new();
        module.declare(22, &[50, 32]).declare(23, &[51, 50, 3]).declare(24, &[52, 51, 4]);
        module.declare(43, &[U32, 53, 5]).declare(28, &[54, 51, 53]).decorate(&[54, 6, 16]);
        let types: Vec<u32> = [55].into_iter().chain(members.iter().map(|(ty, _)| *ty)).collect();
        module.declare(30, &types).declare(32, &[56, PUSH_CONSTANT, 55]).declare(59, &[56, P, PUSH_CONSTANT]);
        module.decorate(&[55, 2]);
        for (index, (_, offset)) in members.iter().enumerate() {
            module.decorate_member(&[55, index as u32, 35, *offset]);
        }
        module.declare(32, &[57, PUSH_CONSTANT, types[1]]).code(65, &[57, 58, P, ZERO]).code(61, &[types[1], 59, 58]);
        add(&mut module);
        module.valid().info_bytes
    };
    let columns: fn(&mut Assembly) = |a| _ = a.decorate_member(&[55, 0, 7, 16]).decorate_member(&[55, 0, 5]);
    let rows: fn(&mut Assembly) = |a| _ = a.decorate_member(&[55, 0, 7, 16]).decorate_member(&[55, 0, 4]);
    assert_eq!(sized(&[(51, 0)], |_| {}), 12);
    assert_eq!(sized(&[(51, 0), (U32, 12)], |_| {}), 16);
    assert_eq!(sized(&[(U32, 0), (51, 16)], |_| {}), 28);
    assert_eq!(sized(&[(54, 0)], |_| {}), 80);
    assert_eq!(sized(&[(52, 0)], columns), 64);
    assert_eq!(sized(&[(52, 0)], rows), 48);
}

#[test]
fn workgroup_memory_is_taken_up_to_the_limit() {
    let with = |count: u32| {
        let mut module = Assembly::new();
        module.declare(43, &[U32, 40, count]).declare(28, &[41, U32, 40]).declare(32, &[42, WORKGROUP, 41]);
        module.declare(32, &[43, WORKGROUP, U32]).declare(59, &[42, 44, WORKGROUP]).declare(59, &[42, 46, WORKGROUP]);
        module.code(65, &[43, 45, 44, ZERO]).code(62, &[45, ONE]);
        module.compile()
    };
    assert!(with(8192).is_ok(), "the second variable is not used");
    assert_eq!(exceeds(with(8193)), ("bytes of workgroup memory".into(), 32_772, 32_768));
    assert_eq!(exceeds(with(u32::MAX)).1, 4 * u64::from(u32::MAX));
}

#[test]
fn lengths_of_arrays_follow_specialization() {
    let mut module = Assembly::new();
    module.declare(28, &[41, U32, FACTOR]).declare(32, &[42, WORKGROUP, 41]);
    module.declare(32, &[43, WORKGROUP, U32]).declare(59, &[42, 44, WORKGROUP]);
    module.code(65, &[43, 45, 44, ZERO]).code(62, &[45, ONE]);
    module.valid();
    assert!(module.translate(&specialize(&[(7, 8192)])).is_ok());
    assert_eq!(exceeds(module.translate(&specialize(&[(7, 9000)]))).1, 36_000);
}

#[test]
fn arrays_of_cooperative_matrices_have_no_bytes_of_their_own() {
    let mut module = Assembly::step();
    module.head.splice(0..0, line(17, &[6022]));
    module.declare(43, &[U32, 50, 16]).declare(43, &[U32, 51, 3]).declare(43, &[U32, 52, 2]);
    module.declare(22, &[53, 32]).declare(4456, &[54, 53, 51, 50, 50, 52]).declare(28, &[55, 54, 50]);
    module.declare(32, &[56, 7, 55]);
    assert!(module.compile().is_ok());
}

// ------------------------------------------------------------------------------------------------------ addresses

/// A block of an address and two words.
fn addressed() -> Assembly {
    let mut module = Assembly::new();
    module.head.splice(0..0, line(17, &[5347]));
    module.declare(23, &[40, U32, 2]).declare(30, &[41, 40, U32, U32]).declare(32, &[42, PUSH_CONSTANT, 41]);
    module.decorate(&[41, 2]).declare(59, &[42, P, PUSH_CONSTANT]).declare(32, &[43, PUSH_CONSTANT, 40]);
    for (member, offset) in [(0, 0), (1, 8), (2, 12)] {
        module.decorate_member(&[41, member, 35, offset]);
    }
    module.code(65, &[43, 44, P, ZERO]).code(61, &[40, 45, 44]);
    module
}

#[test]
fn addresses_stand_before_the_parameters() {
    let shader = addressed().translate(&by_address(&[Write])).expect("compiles");
    assert_eq!((shader.address_count, shader.info_bytes), (1, 8));
    assert_eq!((shader.bindings, shader.access), (vec![], vec![Write]));
    let shader = addressed().translate(&by_address(&[Read, ReadWrite])).expect("compiles");
    assert_eq!((shader.address_count, shader.info_bytes), (2, 0));
    let short = reason(addressed().translate(&by_address(&[Read; 3])));
    assert!(short.contains("24") && short.contains("16"), "{short}");
}

#[test]
fn addresses_need_the_device_and_go_without_bindings() {
    let words = addressed().words();
    let target = ShaderTarget { capabilities: ShaderCapabilities::default(), ..rich() };
    let refused = translate("k", spirv_source(&words, "main"), &by_address(&[Read]), &target);
    assert_eq!(lacks(refused), "buffers by address");
    let both = Assembly::step().translate(&by_address(&[]));
    assert!(reason(both).contains("binding 0"));
}

// ------------------------------------------------------------------------------------------------------- refusals

#[test]
fn words_that_are_no_module_are_refused() {
    let step = Assembly::step().words();
    let none = |words: &[u32]| reason(translate("k", spirv_source(words, "main"), &KernelOptions::default(), &rich()));
    assert!(none(&[]).contains("0 words"));
    assert!(none(&[1, 2, 3]).contains("3 words"));
    assert!(none(&[1, 2, 3, 4, 5, 6]).contains("0x07230203"));
    let swapped: Vec<u32> = step.iter().map(|word| word.swap_bytes()).collect();
    assert!(none(&swapped).contains("other order"));
    for length in 0..step.len() {
        none(&step[..length]);
    }
}

#[test]
fn damaged_words_never_panic() {
    const TILES: &str = "
        struct Size { n: vec3<u32>, factors: mat2x2<f32> }
        var<immediate> size: Size;
        var<workgroup> tile: array<array<vec3<f32>, 8>, 8>;
        @group(0) @binding(0) var<storage, read_write> d: array<atomic<u32>>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) at: u32) {
            tile[at][size.n.x] = vec3(size.factors[0].y);
            workgroupBarrier();
            atomicMin(&d[at], u32(tile[0][at].x));
        }";
    let source = KernelSource::Wgsl { code: TILES.into(), entry: "main".into() };
    let tiles = translate("k", source, &KernelOptions::default(), &rich()).expect("compiles").words;
    for module in [Assembly::step().words(), addressed().words(), tiles] {
        for at in 0..module.len() {
            let word = module[at];
            for damage in [0, 1, 0x0001_0000, 0xffff, u32::MAX, word ^ 1, word ^ 0x0001_0000, word << 16, word + 1] {
                let mut words = module.clone();
                words[at] = damage;
                let result = translate("k", spirv_source(&words, "main"), &KernelOptions::default(), &rich());
                assert!(!matches!(result, Err(LaunchError::OutOfMemory { .. })));
            }
        }
    }
}

#[test]
fn absent_entries_and_constants_are_named() {
    let words = Assembly::step().words();
    let absent = reason(translate("k", spirv_source(&words, "absent"), &KernelOptions::default(), &rich()));
    assert!(absent.contains("`absent`") && absent.contains("`main`"), "{absent}");
    let absent = reason(Assembly::step().translate(&specialize(&[(9, 1)])));
    assert!(absent.contains("constant 9") && absent.contains("[7]"), "{absent}");
    let named = KernelOptions { overrides: vec![("n".into(), 1.0)], ..KernelOptions::default() };
    assert!(reason(Assembly::step().translate(&named)).contains("`n`"));
}

#[test]
fn constants_of_other_widths_are_refused() {
    let mut module = Assembly::step();
    module.head.splice(0..0, line(17, &[11]));
    module.declare(21, &[50, 64, 0]).declare(50, &[50, 51, 1, 0]).decorate(&[51, 1, 8]);
    module.valid();
    assert!(reason(module.translate(&specialize(&[(8, 1)]))).contains("64 bits"));
}

#[test]
fn entries_of_other_stages_do_not_count() {
    let mut module = Assembly::step();
    module.head = [line(17, &[1]), line(14, &[0, 1]), line(15, &[0, MAIN, u32::from_le_bytes(*b"main"), 0])].concat();
    assert!(reason(module.compile()).contains("has none"));
}

#[test]
fn resources_other_than_buffers_are_refused() {
    let mut outside = Assembly::new();
    outside.buffer(D, 1, 0).store(D, 40);
    assert!(reason(outside.compile()).contains("outside set 0"));
    let mut uniform = Assembly::new();
    uniform.declare(32, &[40, 2, BLOCK]).declare(32, &[41, 2, U32]).declare(59, &[40, D, 2]);
    uniform.decorate(&[D, 34, 0]).decorate(&[D, 33, 0]).code(65, &[41, 42, D, ZERO]).code(61, &[U32, 43, 42]);
    assert!(reason(uniform.compile()).contains("uniform buffer"));
    let mut array = Assembly::new();
    array.declare(43, &[U32, 44, 4]).declare(28, &[40, BUFFER, 44]).declare(32, &[41, STORAGE_BUFFER, 40]);
    array.declare(59, &[41, D, STORAGE_BUFFER]).decorate(&[D, 34, 0]).decorate(&[D, 33, 0]);
    array.code(65, &[TO_WORD, 42, D, ZERO, ZERO, ZERO]).code(62, &[42, ONE]);
    assert!(reason(array.compile()).contains("array of buffers"));
}

#[test]
fn versions_and_capabilities_past_the_device_are_refused() {
    let mut newer = Assembly::step();
    newer.version = 0x1_0700;
    assert_eq!(lacks(newer.compile()), "SPIR-V 1.7");
    for (capability, named) in [
        (6, "OpenCL kernels; compile for Vulkan"),
        (9, "f16"),
        (10, "f64"),
        (11, "64-bit integers"),
        (22, "16-bit integers"),
        (39, "8-bit integers"),
        (63, "subgroup operations"),
        (6033, "atomic addition on f32"),
        (5347, "buffers by address"),
        (6022, "matrix units"),
    ] {
        let mut module = Assembly::step();
        module.head.splice(0..0, line(17, &[capability]));
        let target = ShaderTarget { capabilities: ShaderCapabilities::default(), ..rich() };
        let result = translate("k", spirv_source(&module.words(), "main"), &KernelOptions::default(), &target);
        assert_eq!(lacks(result), named);
        assert_eq!(module.compile().is_ok(), capability != 6, "{named}");
    }
}

#[test]
fn functions_must_be_lists_of_blocks() {
    let body = |words: Vec<u32>| {
        let mut module = Assembly::step();
        module.body.extend(words);
        reason(module.compile())
    };
    assert!(body(line(253, &[])).contains("wrong place"));
    assert!(body(line(248, &[90])).contains("wrong place"));
    assert!(body(line(56, &[])).contains("wrong place"));
    let mut missing = Assembly::step();
    missing.code(57, &[VOID, 90, 91]);
    assert!(reason(missing.compile()).contains("%91"));
}
