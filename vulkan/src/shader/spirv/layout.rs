//! Types, and how many bytes their values take.

use std::collections::HashMap;

use super::module::{Constants, Decorations};
use super::op::{self, decoration};
use super::stream::{Id, Instruction, Malformed};

/// Bytes of a 64-bit address.
const ADDRESS_BYTES: u64 = 8;

/// The types of a module. Each is sized when it is read, from types read before: no cycle can be followed.
#[derive(Debug, Default)]
pub(super) struct Types(HashMap<Id, Type>);

/// One type.
#[derive(Debug, Clone)]
struct Type {
    kind: Kind,
    /// Bytes by the offsets and strides that the module gives; of a run-time array none.
    explicit: u64,
    /// Bytes and alignment as drivers lay out workgroup memory: tight, vectors of three aligned as of four.
    natural: (u64, u64),
}

#[derive(Debug, Clone)]
enum Kind {
    Array,
    Matrix { columns: u64, rows: u64 },
    Pointer { to: Id },
    Scalar { bits: u32 },
    Struct { members: Vec<Id> },
    Vector { of: u64 },
}

impl Types {
    /// What a pointer type points to.
    pub(super) fn pointee(&self, pointer: Id) -> Option<Id> {
        match self.0.get(&pointer)?.kind {
            Kind::Pointer { to } => Some(to),
            Kind::Array | Kind::Matrix { .. } | Kind::Scalar { .. } | Kind::Struct { .. } | Kind::Vector { .. } => None,
        }
    }

    /// Members of a struct; none where `ty` is something else.
    pub(super) fn members(&self, ty: Id) -> Option<&[Id]> {
        match &self.0.get(&ty)?.kind {
            Kind::Struct { members } => Some(members),
            Kind::Array | Kind::Matrix { .. } | Kind::Scalar { .. } | Kind::Pointer { .. } | Kind::Vector { .. } => {
                None
            }
        }
    }

    /// Bits of a number; 32 for anything else, as a boolean has in a specialization.
    pub(super) fn bits(&self, ty: Id) -> u32 {
        match self.0.get(&ty).map(|ty| &ty.kind) {
            Some(Kind::Scalar { bits }) => *bits,
            _ => 32,
        }
    }

    /// Bytes by the module's own offsets and strides.
    pub(super) fn explicit_bytes(&self, ty: Id) -> u64 {
        self.0.get(&ty).map_or(0, |ty| ty.explicit)
    }

    /// Bytes and alignment in workgroup memory.
    pub(super) fn natural_layout(&self, ty: Id) -> (u64, u64) {
        self.0.get(&ty).map_or((0, 1), |ty| ty.natural)
    }

    /// Reads the declaration of a type.
    pub(super) fn read(
        &mut self,
        line: &Instruction<'_>,
        constants: &Constants,
        decorations: &Decorations<'_>,
    ) -> Result<(), Malformed> {
        let id = line.id(0)?;
        let ty = match line.op {
            op::TYPE_BOOL => scalar(32),
            op::TYPE_INT | op::TYPE_FLOAT => scalar(line.literal(1)?),
            op::TYPE_VECTOR => self.vector(line.id(1)?, line.literal(2)?)?,
            op::TYPE_MATRIX => self.matrix(line.id(1)?, line.literal(2)?)?,
            op::TYPE_ARRAY => {
                // A length that cannot be computed here is the driver's to check.
                let length = constants.scalar(line.id(2)?).unwrap_or(0);
                self.array(line.id(1)?, length, decorations.of(id, decoration::ARRAY_STRIDE))?
            }
            op::TYPE_RUNTIME_ARRAY => self.array(line.id(1)?, 0, None)?,
            op::TYPE_STRUCT => self.structure(id, line.ids(1)?, decorations),
            op::TYPE_POINTER => {
                let kind = Kind::Pointer { to: line.id(2)? };
                Type { kind, explicit: ADDRESS_BYTES, natural: (ADDRESS_BYTES, ADDRESS_BYTES) }
            }
            // Images, samplers and the parts of matrices: they have no bytes in memory, and arrays may hold them.
            _ => scalar(0),
        };
        self.0.insert(id, ty);
        Ok(())
    }

    fn earlier(&self, id: Id) -> Result<&Type, Malformed> {
        self.0.get(&id).ok_or_else(|| format!("%{id} is used as a type before it is one"))
    }

    fn vector(&self, of: Id, count: u32) -> Result<Type, Malformed> {
        let (bytes, _) = self.earlier(of)?.natural;
        let size = bytes.saturating_mul(count.into());
        let alignment = if count == 3 { bytes.saturating_mul(4) } else { size };
        Ok(Type { kind: Kind::Vector { of: bytes }, explicit: size, natural: (size, alignment.max(1)) })
    }

    fn matrix(&self, column: Id, columns: u32) -> Result<Type, Malformed> {
        let column = self.earlier(column)?;
        let Kind::Vector { of } = column.kind else {
            return Err("a matrix of something other than vectors".to_owned());
        };
        let (size, alignment) = column.natural;
        let rows = size.checked_div(of).unwrap_or(0);
        let natural = (round_up(size, alignment).saturating_mul(columns.into()), alignment);
        Ok(Type { kind: Kind::Matrix { columns: columns.into(), rows }, explicit: natural.0, natural })
    }

    fn array(&self, of: Id, length: u64, stride: Option<u32>) -> Result<Type, Malformed> {
        let element = self.earlier(of)?;
        let (size, alignment) = element.natural;
        let tight = round_up(size, alignment);
        let explicit = stride.map_or(element.explicit, u64::from).saturating_mul(length);
        Ok(Type { kind: Kind::Array, explicit, natural: (tight.saturating_mul(length), alignment) })
    }

    fn structure(&self, id: Id, members: Vec<Id>, decorations: &Decorations<'_>) -> Type {
        let (mut explicit, mut size, mut alignment) = (0, 0u64, 1);
        for (index, member) in (0u32..).zip(&members) {
            // Only a pointer may be declared later than the struct that holds it.
            let (bytes, natural) = match self.0.get(member) {
                Some(ty) => (member_bytes(id, index, ty, decorations), ty.natural),
                None => (ADDRESS_BYTES, (ADDRESS_BYTES, ADDRESS_BYTES)),
            };
            let offset = decorations.of_member(id, index, decoration::OFFSET).unwrap_or(0);
            explicit = bytes.saturating_add(offset.into()).max(explicit);
            size = round_up(size, natural.1).saturating_add(natural.0);
            alignment = natural.1.max(alignment);
        }
        let natural = (round_up(size, alignment), alignment);
        Type { kind: Kind::Struct { members }, explicit, natural }
    }
}

/// Bytes of a member; how far the columns of a matrix lie apart is said where it is a member.
fn member_bytes(id: Id, index: u32, ty: &Type, decorations: &Decorations<'_>) -> u64 {
    let Kind::Matrix { columns, rows } = ty.kind else {
        return ty.explicit;
    };
    let Some(stride) = decorations.of_member(id, index, decoration::MATRIX_STRIDE) else {
        return ty.explicit;
    };
    let row_major = decorations.of_member(id, index, decoration::ROW_MAJOR).is_some();
    u64::from(stride).saturating_mul(if row_major { rows } else { columns })
}

/// The next multiple of `alignment`; sizes that no device has are all alike.
fn round_up(size: u64, alignment: u64) -> u64 {
    size.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
}

fn scalar(bits: u32) -> Type {
    let bytes = u64::from(bits.div_ceil(8));
    Type { kind: Kind::Scalar { bits }, explicit: bytes, natural: (bytes, bytes.max(1)) }
}
