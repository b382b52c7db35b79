//! The tables of a module: what its instructions declare.

use std::collections::{BTreeMap, HashMap};

use super::layout::Types;
use super::op::{self, decoration};
use super::stream::{Id, Instruction, Malformed, Stream};

/// A module, read once from front to back.
#[derive(Debug)]
pub(super) struct Module<'a> {
    /// Capabilities that it declares.
    pub(super) capabilities: Vec<u32>,
    /// Entry points of all kinds.
    pub(super) entries: Vec<EntryPoint>,
    /// Decorations.
    pub(super) decorations: Decorations<'a>,
    /// Types, with their sizes.
    pub(super) types: Types,
    /// Constants, with specialization applied.
    pub(super) constants: Constants,
    /// Variables outside functions.
    pub(super) variables: Vec<Variable>,
    /// Functions with a body.
    pub(super) functions: HashMap<Id, Vec<Instruction<'a>>>,
    /// Names of the sets of extended instructions.
    pub(super) imports: HashMap<Id, String>,
    modes: Vec<Instruction<'a>>,
}

/// A place where a module can be entered.
#[derive(Debug)]
pub(super) struct EntryPoint {
    /// The stage.
    pub(super) model: u32,
    /// Its code.
    pub(super) function: Id,
    /// Its name.
    pub(super) name: String,
}

/// A variable outside functions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variable {
    /// Names it.
    pub(super) id: Id,
    /// Type of the pointer to it.
    pub(super) pointer: Id,
    /// Where it lives.
    pub(super) class: u32,
}

/// Decorations by what they decorate.
#[derive(Debug, Default)]
pub(super) struct Decorations<'a>(HashMap<Id, Vec<Decoration<'a>>>);

#[derive(Debug, Clone, Copy)]
struct Decoration<'a> {
    member: Option<u32>,
    kind: u32,
    operands: &'a [u32],
}

impl Decorations<'_> {
    /// The first operand of a decoration of `id`, zero where it has none.
    pub(super) fn of(&self, id: Id, kind: u32) -> Option<u32> {
        self.find(id, None, kind)
    }

    /// The same for a member of the struct `id`.
    pub(super) fn of_member(&self, id: Id, member: u32, kind: u32) -> Option<u32> {
        self.find(id, Some(member), kind)
    }

    fn find(&self, id: Id, member: Option<u32>, kind: u32) -> Option<u32> {
        let found = self.0.get(&id)?.iter().find(|d| d.member == member && d.kind == kind)?;
        Some(found.operands.first().copied().unwrap_or(0))
    }
}

impl<'a> Decorations<'a> {
    fn read(&mut self, line: &Instruction<'a>) -> Result<(), Malformed> {
        let target = line.id(0)?;
        match line.op {
            op::DECORATE => {
                let decoration = Decoration { member: None, kind: line.literal(1)?, operands: line.tail(2) };
                self.0.entry(target).or_default().push(decoration);
            }
            op::MEMBER_DECORATE => {
                let member = Some(line.literal(1)?);
                let decoration = Decoration { member, kind: line.literal(2)?, operands: line.tail(3) };
                self.0.entry(target).or_default().push(decoration);
            }
            op::GROUP_DECORATE => {
                let group = self.0.get(&target).cloned().unwrap_or_default();
                for target in line.ids(1)? {
                    self.0.entry(target).or_default().extend(&group);
                }
            }
            _ => {
                let group = self.0.get(&target).cloned().unwrap_or_default();
                for pair in line.tail(1).chunks_exact(2) {
                    let member = group.iter().map(|d| Decoration { member: Some(pair[1]), ..*d });
                    self.0.entry(pair[0]).or_default().extend(member);
                }
            }
        }
        Ok(())
    }
}

/// Values of constants. Floating-point values are kept as bits.
#[derive(Debug, Default)]
pub(super) struct Constants {
    scalars: HashMap<Id, u64>,
    composites: HashMap<Id, Vec<Id>>,
    /// Ids that values can be given for, and how many bits each has.
    pub(super) specializable: BTreeMap<u32, u32>,
}

impl Constants {
    /// The value of a scalar, where it is known before the module runs.
    pub(super) fn scalar(&self, id: Id) -> Option<u64> {
        self.scalars.get(&id).copied()
    }

    /// The three parts of a vector.
    pub(super) fn triple(&self, id: Id) -> Option<[u32; 3]> {
        let [x, y, z] = self.composites.get(&id)?.as_slice() else {
            return None;
        };
        self.sizes([*x, *y, *z])
    }

    /// The values of three scalars.
    pub(super) fn sizes(&self, ids: [Id; 3]) -> Option<[u32; 3]> {
        let size = |id: Id| self.scalar(id).and_then(|value| u32::try_from(value).ok());
        Some([size(ids[0])?, size(ids[1])?, size(ids[2])?])
    }

    fn read(
        &mut self,
        line: &Instruction<'_>,
        types: &Types,
        decorations: &Decorations<'_>,
        given: &[(u32, u32)],
    ) -> Result<(), Malformed> {
        let (ty, id) = (line.id(0)?, line.id(1)?);
        let value = match line.op {
            op::CONSTANT_COMPOSITE | op::SPEC_CONSTANT_COMPOSITE => {
                self.composites.insert(id, line.ids(2)?);
                return Ok(());
            }
            op::CONSTANT_TRUE | op::SPEC_CONSTANT_TRUE => Some(1),
            op::CONSTANT_FALSE | op::SPEC_CONSTANT_FALSE | op::CONSTANT_NULL => Some(0),
            op::SPEC_CONSTANT_OP => self.evaluate(line, types.bits(ty)),
            op::CONSTANT | op::SPEC_CONSTANT => {
                let high = line.operands.get(3).copied().unwrap_or(0);
                Some(u64::from(line.literal(2)?) | u64::from(high) << 32)
            }
            _ => return Ok(()),
        };
        let specialized = decorations.of(id, decoration::SPEC_ID);
        if let Some(spec) = specialized {
            self.specializable.insert(spec, types.bits(ty));
        }
        let named = given.iter().rfind(|(spec, _)| Some(*spec) == specialized);
        if let Some(value) = named.map(|(_, bits)| u64::from(*bits)).or(value) {
            self.scalars.insert(id, value);
        }
        Ok(())
    }

    /// The value of an expression of constants; none where the expression is of a kind that no size depends on.
    fn evaluate(&self, line: &Instruction<'_>, bits: u32) -> Option<u64> {
        let at = |index: usize| self.scalar(line.id(index).ok()?);
        let operation = u16::try_from(line.literal(2).ok()?).ok()?;
        let a = at(3)?;
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        // Only asked of values of 32 bits.
        let signed = |value: u64| u32::try_from(value).ok().map(|value| i64::from(value.cast_signed()));
        let value = match operation {
            op::UCONVERT | op::SCONVERT => a,
            op::SNEGATE => a.wrapping_neg(),
            op::NOT => !a,
            op::SELECT => return if a != 0 { at(4) } else { at(5) },
            _ => {
                let b = at(4)?;
                match operation {
                    op::IADD => a.wrapping_add(b),
                    op::ISUB => a.wrapping_sub(b),
                    op::IMUL => a.wrapping_mul(b),
                    op::UDIV => a.checked_div(b)?,
                    op::SDIV if bits == 32 => signed(a)?.checked_div(signed(b)?)?.cast_unsigned(),
                    op::UMOD => a.checked_rem(b)?,
                    op::SHIFT_LEFT_LOGICAL => a.checked_shl(u32::try_from(b).ok()?)?,
                    op::SHIFT_RIGHT_LOGICAL => a.checked_shr(u32::try_from(b).ok()?)?,
                    op::BITWISE_AND => a & b,
                    op::BITWISE_OR => a | b,
                    op::BITWISE_XOR => a ^ b,
                    op::IEQUAL => u64::from(a == b),
                    op::INOT_EQUAL => u64::from(a != b),
                    op::UGREATER_THAN => u64::from(a > b),
                    op::UGREATER_THAN_EQUAL => u64::from(a >= b),
                    op::ULESS_THAN => u64::from(a < b),
                    op::ULESS_THAN_EQUAL => u64::from(a <= b),
                    _ => return None,
                }
            }
        };
        Some(value & mask)
    }
}

impl<'a> Module<'a> {
    /// Reads all of `stream`, with values for specialization constants.
    pub(super) fn read(mut stream: Stream<'a>, given: &[(u32, u32)]) -> Result<Self, Malformed> {
        let mut module = Self {
            capabilities: Vec::new(),
            entries: Vec::new(),
            decorations: Decorations::default(),
            types: Types::default(),
            constants: Constants::default(),
            variables: Vec::new(),
            functions: HashMap::new(),
            imports: HashMap::new(),
            modes: Vec::new(),
        };
        while let Some(line) = stream.next_instruction()? {
            match line.op {
                op::FUNCTION => {
                    let body = read_function(&mut stream)?;
                    if module.functions.insert(line.id(1)?, body).is_some() {
                        return Err(format!("two functions are %{}", line.id(1)?));
                    }
                }
                op::LINE | op::NO_LINE => {}
                _ if !module.functions.is_empty() && !module.is_comment(&line) => {
                    return Err(format!("an instruction ({}) after the functions and outside of them", line.op));
                }
                _ => module.declare(&line, given)?,
            }
        }
        Ok(module)
    }

    /// Size of a workgroup of an entry point.
    pub(super) fn workgroup(&self, entry: Id) -> Result<[u32; 3], Malformed> {
        let unknown = || "the workgroup size is computed in a way that is not understood".to_owned();
        // A constant with this decoration overrides the execution modes.
        let built_in = |id: &Id| self.decorations.of(*id, decoration::BUILT_IN) == Some(op::BUILTIN_WORKGROUP_SIZE);
        if let Some(id) = self.constants.composites.keys().find(|id| built_in(id)) {
            return self.constants.triple(*id).ok_or_else(unknown);
        }
        for mode in self.modes.iter().filter(|mode| mode.id(0) == Ok(entry)) {
            match (mode.op, mode.literal(1)?) {
                (op::EXECUTION_MODE, op::MODE_LOCAL_SIZE) => {
                    return Ok([mode.literal(2)?, mode.literal(3)?, mode.literal(4)?]);
                }
                (op::EXECUTION_MODE_ID, op::MODE_LOCAL_SIZE_ID) => {
                    return self.constants.sizes([mode.id(2)?, mode.id(3)?, mode.id(4)?]).ok_or_else(unknown);
                }
                _ => {}
            }
        }
        Err("the entry point does not say how large a workgroup is".to_owned())
    }

    /// Whether an instruction means nothing to a device.
    pub(super) fn is_comment(&self, line: &Instruction<'_>) -> bool {
        let set = || line.id(2).ok().and_then(|set| self.imports.get(&set));
        line.op == op::EXT_INST && set().is_some_and(|name| name.starts_with("NonSemantic."))
    }

    fn declare(&mut self, line: &Instruction<'a>, given: &[(u32, u32)]) -> Result<(), Malformed> {
        match line.op {
            op::CAPABILITY => self.capabilities.push(line.literal(0)?),
            op::EXT_INST_IMPORT => {
                self.imports.insert(line.id(0)?, line.text(1)?);
            }
            op::ENTRY_POINT => {
                let entry = EntryPoint { model: line.literal(0)?, function: line.id(1)?, name: line.text(2)? };
                self.entries.push(entry);
            }
            op::EXECUTION_MODE | op::EXECUTION_MODE_ID => self.modes.push(*line),
            op::DECORATE | op::MEMBER_DECORATE | op::GROUP_DECORATE | op::GROUP_MEMBER_DECORATE => {
                self.decorations.read(line)?;
            }
            op::TYPE_BOOL..=op::TYPE_POINTER | op::TYPE_COOPERATIVE_MATRIX => {
                self.types.read(line, &self.constants, &self.decorations)?;
            }
            op::CONSTANT_TRUE..=op::SPEC_CONSTANT_OP => {
                self.constants.read(line, &self.types, &self.decorations, given)?;
            }
            op::VARIABLE => {
                let variable = Variable { pointer: line.id(0)?, id: line.id(1)?, class: line.literal(2)? };
                self.variables.push(variable);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads up to the end of a function, and checks that it is a list of blocks.
fn read_function<'a>(stream: &mut Stream<'a>) -> Result<Vec<Instruction<'a>>, Malformed> {
    let (mut body, mut in_block) = (Vec::new(), false);
    loop {
        let Some(line) = stream.next_instruction()? else {
            return Err("cut off: a function has no end".to_owned());
        };
        let fits = match line.op {
            op::LINE | op::NO_LINE => true,
            op::FUNCTION_END if !in_block => return Ok(body),
            op::FUNCTION | op::FUNCTION_END => false,
            op::FUNCTION_PARAMETER => !in_block && body.is_empty(),
            op::LABEL => !std::mem::replace(&mut in_block, true),
            op::BRANCH..=op::UNREACHABLE | op::TERMINATE_INVOCATION => std::mem::replace(&mut in_block, false),
            _ => in_block,
        };
        if !fits {
            return Err(format!("an instruction ({}) at a wrong place in a function", line.op));
        }
        if !matches!(line.op, op::LINE | op::NO_LINE | op::FUNCTION_PARAMETER) {
            body.push(line);
        }
    }
}
