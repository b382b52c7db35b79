//! The word stream: a header, then instructions that each say how long they are.

use super::op;

/// Names a result within a module.
pub(super) type Id = u32;

/// Why words are no module.
pub(super) type Malformed = String;

/// The stream after its header.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    /// Major and minor.
    pub(super) version: (u8, u8),
    bound: u32,
    rest: &'a [u32],
}

impl<'a> Stream<'a> {
    /// Reads the header.
    pub(super) fn new(words: &'a [u32]) -> Result<Self, Malformed> {
        let [magic, version, _generator, bound, _schema, rest @ ..] = words else {
            return Err(format!("{} words are too few for a SPIR-V module", words.len()));
        };
        if magic.swap_bytes() == op::MAGIC {
            return Err("the bytes of each SPIR-V word are in the other order".to_owned());
        }
        if *magic != op::MAGIC {
            return Err(format!("SPIR-V starts with {:#010x}, this with {magic:#010x}", op::MAGIC));
        }
        let [0, major, minor, 0] = version.to_be_bytes() else {
            return Err(format!("{version:#010x} is no SPIR-V version"));
        };
        if !(1..=op::BOUND_MAX).contains(bound) {
            return Err(format!("an id bound of {bound} is out of range"));
        }
        Ok(Self { version: (major, minor), bound: *bound, rest })
    }

    /// The next instruction; none at the end.
    pub(super) fn next_instruction(&mut self) -> Result<Option<Instruction<'a>>, Malformed> {
        let Some(first) = self.rest.first() else {
            return Ok(None);
        };
        let (op, count) = ((first & 0xffff) as u16, (first >> 16) as usize);
        if count == 0 {
            return Err(format!("an instruction ({op}) of no words"));
        }
        let Some((words, rest)) = self.rest.split_at_checked(count) else {
            return Err(format!("cut off: an instruction ({op}) of {count} words with {} left", self.rest.len()));
        };
        self.rest = rest;
        Ok(Some(Instruction { op, operands: &words[1..], bound: self.bound }))
    }
}

/// One instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction<'a> {
    /// Which.
    pub(super) op: u16,
    /// All words but the first.
    pub(super) operands: &'a [u32],
    bound: u32,
}

impl<'a> Instruction<'a> {
    /// The operand at `index`, taken as a number.
    pub(super) fn literal(&self, index: usize) -> Result<u32, Malformed> {
        let operand = self.operands.get(index).copied();
        operand.ok_or_else(|| format!("an instruction ({}) has {} operands only", self.op, self.operands.len()))
    }

    /// The operand at `index`, taken as an id.
    pub(super) fn id(&self, index: usize) -> Result<Id, Malformed> {
        let id = self.literal(index)?;
        if id == 0 || id >= self.bound {
            return Err(format!("an id of {id}, with ids below {}", self.bound));
        }
        Ok(id)
    }

    /// The operands from `index` on; none where there are fewer.
    pub(super) fn tail(&self, index: usize) -> &'a [u32] {
        self.operands.get(index..).unwrap_or_default()
    }

    /// The ids from `index` on.
    pub(super) fn ids(&self, index: usize) -> Result<Vec<Id>, Malformed> {
        (index..self.operands.len()).map(|i| self.id(i)).collect()
    }

    /// The text that starts at `index`.
    pub(super) fn text(&self, index: usize) -> Result<String, Malformed> {
        let bytes: Vec<u8> = self.tail(index).iter().flat_map(|word| word.to_le_bytes()).collect();
        let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
            return Err(format!("a text without an end in an instruction ({})", self.op));
        };
        String::from_utf8(bytes[..end].to_vec()).map_err(|_| "a text that is not UTF-8".to_owned())
    }
}
