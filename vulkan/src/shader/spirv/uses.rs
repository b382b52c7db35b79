//! What an entry point does to the variables of its module.
//!
//! Pointers are followed from each instruction back to the variable they came from. The analysis errs on one side
//! only: a pointer that goes where it cannot be followed counts as loaded from, stored to and
//! measured.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::module::Module;
use super::op::{self, class};
use super::stream::{Id, Instruction, Malformed};

/// What happens to one variable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// Something loads from it.
    pub(super) reads: bool,
    /// Something stores to it.
    pub(super) writes: bool,
    /// Something asks for its length.
    pub(super) measures: bool,
}

impl Use {
    const NAMED: Self = Self { reads: false, writes: false, measures: false };
    const MEASURED: Self = Self { measures: true, ..Self::NAMED };
    const READ: Self = Self { reads: true, ..Self::NAMED };
    const WRITTEN: Self = Self { writes: true, ..Self::NAMED };
    const ALL: Self = Self { reads: true, writes: true, measures: true };
}

/// The variables outside functions that `entry` and what it calls use, by id.
pub(super) fn uses(module: &Module<'_>, entry: Id) -> Result<BTreeMap<Id, Use>, Malformed> {
    let mut uses = Uses { module, roots: HashMap::new(), found: BTreeMap::new() };
    uses.roots.extend(module.variables.iter().map(|variable| (variable.id, variable.id)));
    let (mut waiting, mut seen) = (vec![entry], BTreeSet::from([entry]));
    while let Some(function) = waiting.pop() {
        let body = module.functions.get(&function).filter(|body| !body.is_empty());
        let Some(body) = body else {
            return Err(format!("function %{function} has no body"));
        };
        // Blocks stand in an order in which a value comes before its uses, but for the values that a loop carries
        // round; those are counted in `escape`.
        for line in body {
            uses.follow(line)?;
            if line.op == op::FUNCTION_CALL && seen.insert(line.id(2)?) {
                waiting.push(line.id(2)?);
            }
        }
    }
    Ok(uses.found)
}

struct Uses<'m, 'a> {
    module: &'m Module<'a>,
    /// The variable behind each pointer.
    roots: HashMap<Id, Id>,
    found: BTreeMap<Id, Use>,
}

impl Uses<'_, '_> {
    fn follow(&mut self, line: &Instruction<'_>) -> Result<(), Malformed> {
        match line.op {
            op::LOAD | op::ATOMIC_LOAD | op::COOPERATIVE_MATRIX_LOAD => self.mark(line.id(2)?, Use::READ),
            op::STORE | op::COOPERATIVE_MATRIX_STORE => {
                self.mark(line.id(0)?, Use::WRITTEN);
                // A pointer that is stored may come back from anywhere.
                self.escape(&[line.id(1)?]);
            }
            op::COPY_MEMORY | op::COPY_MEMORY_SIZED => {
                self.mark(line.id(0)?, Use::WRITTEN);
                self.mark(line.id(1)?, Use::READ);
            }
            op::ACCESS_CHAIN
            | op::IN_BOUNDS_ACCESS_CHAIN
            | op::PTR_ACCESS_CHAIN
            | op::IN_BOUNDS_PTR_ACCESS_CHAIN
            | op::COPY_OBJECT => self.derive(line.id(1)?, line.id(2)?),
            op::ARRAY_LENGTH => self.mark(line.id(2)?, Use::MEASURED),
            op::ATOMIC_STORE => self.mark(line.id(0)?, Use::WRITTEN),
            op::ATOMIC_EXCHANGE..=op::ATOMIC_XOR | op::ATOMIC_FADD | op::ATOMIC_FMIN | op::ATOMIC_FMAX => {
                self.mark(line.id(2)?, Use { writes: true, ..Use::READ });
            }
            op::FUNCTION_CALL => self.escape(line.tail(3)),
            op::EXT_INST if self.module.is_comment(line) => {}
            op::EXT_INST => self.escape(line.tail(4)),
            // Values only, beside numbers that may look like the id of a variable.
            op::COMPOSITE_EXTRACT | op::COMPOSITE_INSERT | op::VECTOR_SHUFFLE | op::VARIABLE => {}
            op::BRANCH_CONDITIONAL | op::LABEL | op::LOOP_MERGE | op::SELECTION_MERGE | op::SWITCH => {}
            op::GROUP_NON_UNIFORM_ELECT..=op::GROUP_NON_UNIFORM_QUAD_SWAP => {}
            op::DOT..=op::SUDOT_ACC_SAT | op::COOPERATIVE_MATRIX_MUL_ADD => {}
            _ => self.escape(line.operands),
        }
        Ok(())
    }

    /// Notes a use of the variable behind a pointer.
    fn mark(&mut self, pointer: Id, add: Use) {
        if let Some(root) = self.roots.get(&pointer) {
            let found = self.found.entry(*root).or_default();
            *found = Use {
                reads: found.reads || add.reads,
                writes: found.writes || add.writes,
                measures: found.measures || add.measures,
            };
        }
    }

    /// Notes that `pointer` is a part of what `base` points to.
    fn derive(&mut self, pointer: Id, base: Id) {
        if let Some(root) = self.roots.get(&base).copied() {
            self.roots.insert(pointer, root);
            self.mark(pointer, Use::NAMED);
        }
    }

    /// Gives up on the pointers among `operands`.
    fn escape(&mut self, operands: &[u32]) {
        for id in operands {
            self.mark(*id, Use::ALL);
        }
    }
}

/// Whether uses of a variable of this class concern a launch.
pub(super) fn is_resource(storage: u32) -> bool {
    matches!(
        storage,
        class::UNIFORM_CONSTANT | class::UNIFORM | class::WORKGROUP | class::PUSH_CONSTANT | class::STORAGE_BUFFER
    )
}
