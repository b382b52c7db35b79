//! Shapes, strides and layouts, and which of them can be copied as rows.

use crate::error::IoError;
use crate::handle::Handle;

/// Extents of a tensor, outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub Vec<usize>);

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Self {
        Self(extents.to_vec())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(extents: Vec<usize>) -> Self {
        Self(extents)
    }
}

impl Shape {
    /// Bytes of a dense tensor of this shape; the largest number where that overflows.
    pub fn dense_bytes(&self, elem_size: usize) -> u64 {
        if self.0.contains(&0) {
            return 0;
        }
        self.0.iter().fold(elem_size as u64, |bytes, &n| bytes.saturating_mul(n as u64))
    }

    /// Strides of a dense row-major tensor of this shape.
    pub fn dense_strides(&self) -> Strides {
        let mut strides = vec![1usize; self.0.len()];
        for i in (1..self.0.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(self.0[i].max(1));
        }
        Strides(strides)
    }
}

/// Elements, not bytes, from one index to the next, outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Strides(pub Vec<usize>);

impl<const N: usize> From<[usize; N]> for Strides {
    fn from(steps: [usize; N]) -> Self {
        Self(steps.to_vec())
    }
}

impl From<Vec<usize>> for Strides {
    fn from(steps: Vec<usize>) -> Self {
        Self(steps)
    }
}

/// A tensor in device memory, to be read.
#[derive(Debug, Clone)]
pub struct CopyDescriptor {
    /// The memory.
    pub handle: Handle,
    /// The extents.
    pub shape: Shape,
    /// The strides, in elements.
    pub strides: Strides,
    /// Bytes of an element.
    pub elem_size: usize,
}

impl CopyDescriptor {
    /// The tensor of this shape and these strides at the start of `handle`.
    pub fn new(handle: Handle, shape: impl Into<Shape>, strides: impl Into<Strides>, elem_size: usize) -> Self {
        Self { handle, shape: shape.into(), strides: strides.into(), elem_size }
    }
}

/// A tensor that the runtime laid out.
#[derive(Debug, Clone)]
pub struct MemoryLayout {
    /// The memory.
    pub memory: Handle,
    /// The strides chosen, in elements.
    pub strides: Strides,
}

/// How a tensor is to be laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLayoutStrategy {
    /// Rows follow each other without a gap.
    Contiguous,
    /// Rows may be padded so that each starts on a whole load.
    Optimized,
}

/// A tensor to be reserved.
#[derive(Debug, Clone)]
pub struct MemoryLayoutDescriptor {
    /// How.
    pub strategy: MemoryLayoutStrategy,
    /// The extents.
    pub shape: Shape,
    /// Bytes of an element.
    pub elem_size: usize,
}

impl MemoryLayoutDescriptor {
    /// A tensor without padding.
    pub fn contiguous(shape: impl Into<Shape>, elem_size: usize) -> Self {
        Self { strategy: MemoryLayoutStrategy::Contiguous, shape: shape.into(), elem_size }
    }

    /// A tensor that the runtime may pad.
    pub fn optimized(shape: impl Into<Shape>, elem_size: usize) -> Self {
        Self { strategy: MemoryLayoutStrategy::Optimized, shape: shape.into(), elem_size }
    }

    /// The rows of this tensor, and its strides.
    pub fn layout(&self) -> (Rows, Strides) {
        let dense = self.shape.dense_strides();
        let bytes = self.shape.dense_bytes(self.elem_size);
        let last = self.shape.0.last().copied().unwrap_or(1);
        let row_bytes = (last as u64).saturating_mul(self.elem_size as u64);
        let pad = self.strategy == MemoryLayoutStrategy::Optimized
            && self.shape.0.len() >= 2
            && last > 1
            && bytes > row_bytes
            && bytes < u64::MAX / 2
            && self.elem_size > 0
            && ROW_ALIGNMENT.is_multiple_of(self.elem_size as u64)
            && !row_bytes.is_multiple_of(ROW_ALIGNMENT);
        if !pad {
            return (Rows::contiguous(bytes), dense);
        }
        let pitch = row_bytes.next_multiple_of(ROW_ALIGNMENT);
        let mut strides = dense.0;
        let outer = strides.len() - 1;
        let widen = pitch as usize / self.elem_size;
        for stride in &mut strides[..outer] {
            *stride = *stride / last * widen;
        }
        (Rows { count: bytes / row_bytes, bytes: row_bytes, pitch }, Strides(strides))
    }
}

/// Bytes on which a padded row starts: the widest load of a kernel.
const ROW_ALIGNMENT: u64 = 16;

/// Equal runs of bytes at a fixed distance: what a tensor with padding on its rows comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// Bytes from the start of one to the start of the next.
    pub pitch: u64,
}

/// Some of many rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Bytes from the start of the first of all to the start of the first of these.
    pub from: u64,
    /// Where these start among the dense bytes.
    pub to: u64,
    /// These.
    pub rows: Rows,
    /// These and all behind them.
    pub left: Rows,
}

impl Rows {
    /// One run of `bytes`.
    pub const fn contiguous(bytes: u64) -> Self {
        Self { count: 1, bytes, pitch: bytes }
    }

    /// Bytes without the padding.
    pub const fn dense_bytes(&self) -> u64 {
        self.count.saturating_mul(self.bytes)
    }

    /// Bytes from the first of the first row to the last of the last.
    pub const fn extent(&self) -> u64 {
        if self.count == 0 || self.bytes == 0 {
            return 0;
        }
        (self.count - 1).saturating_mul(self.pitch).saturating_add(self.bytes)
    }

    /// The rows cut in pieces of about `bytes` each: of whole rows where there is padding between them, and anywhere
    /// where there is none. No bytes are no pieces.
    pub fn pieces(self, bytes: u64) -> impl Iterator<Item = Piece> {
        let is_run = self.count == 1 || self.pitch == self.bytes;
        // A run is as good as rows of one byte.
        let units = if is_run { Self { count: self.dense_bytes(), bytes: 1, pitch: 1 } } else { self };
        let count = if self.dense_bytes() == 0 { 0 } else { units.count };
        let most = (bytes / units.bytes.max(1)).max(1);
        let rows = move |count| if is_run { Self::contiguous(count) } else { Self { count, ..units } };
        (0..count).step_by(usize::try_from(most).unwrap_or(usize::MAX)).map(move |first| Piece {
            from: first * units.pitch,
            to: first * units.bytes,
            rows: rows(most.min(count - first)),
            left: rows(count - first),
        })
    }

    /// The rows of a tensor inside `available` bytes.
    ///
    /// # Errors
    /// [`IoError::UnsupportedStrides`] unless the strides are row-major with padding at most between rows
    /// of the last dimension, and [`IoError::Unsupported`] where the tensor does not lie within `available`.
    pub fn of(shape: &Shape, strides: &Strides, elem_size: usize, available: u64) -> Result<Self, IoError> {
        let refuse = || IoError::UnsupportedStrides(strides.clone());
        if shape.0.len() != strides.0.len() {
            return Err(refuse());
        }
        if shape.0.contains(&0) || elem_size == 0 {
            return Ok(Self::contiguous(0));
        }
        let past = |bytes: u64| {
            IoError::Unsupported(format!("a tensor of shape {:?} ends at byte {bytes} of {available}", shape.0))
        };
        if shape.dense_bytes(elem_size) > available {
            return Err(past(shape.dense_bytes(elem_size)));
        }
        let dims: Vec<(usize, usize)> =
            shape.0.iter().copied().zip(strides.0.iter().copied()).filter(|&(n, _)| n > 1).collect();
        let rows = match dims.split_last() {
            None => Self::contiguous(elem_size as u64),
            Some((&(last, step), outer)) => {
                // A column: each element is a row of its own.
                let (row, outer, mut inner) =
                    if step == 1 { (last, outer, None) } else { (1, &dims[..], None::<(usize, usize)>) };
                let mut count = 1u64;
                for &(n, stride) in outer.iter().rev() {
                    if let Some((inner_n, inner_stride)) = inner
                        && Some(stride) != inner_stride.checked_mul(inner_n)
                    {
                        return Err(refuse());
                    }
                    if inner.is_none() && stride < row {
                        return Err(refuse());
                    }
                    count = count.saturating_mul(n as u64);
                    inner = Some((n, stride));
                }
                let bytes = (row * elem_size) as u64;
                let pitch_elems = outer.last().map_or(row, |&(_, stride)| stride);
                let pitch = (pitch_elems as u64).saturating_mul(elem_size as u64);
                if pitch == bytes { Self::contiguous(count * bytes) } else { Self { count, bytes, pitch } }
            }
        };
        if rows.extent() > available {
            return Err(past(rows.extent()));
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(shape: &[usize], strides: &[usize]) -> Result<Rows, IoError> {
        Rows::of(&shape.to_vec().into(), &strides.to_vec().into(), 4, 1 << 20)
    }

    proptest! {
        #[test]
        fn pieces_together_are_the_rows(count in 1u64..20, row in 1u64..50, padding in 0u64..9, bytes in 1u64..200) {
            let rows = Rows { count, bytes: row, pitch: row + padding };
            let places = |rows: Rows, at: u64| {
                (0..rows.count).flat_map(move |r| (0..rows.bytes).map(move |b| at + r * rows.pitch + b))
            };
            let mut found = Vec::new();
            for piece in rows.pieces(bytes) {
                prop_assert!(piece.rows.dense_bytes() > 0);
                prop_assert!(piece.rows.dense_bytes() <= bytes || piece.rows.count == 1);
                prop_assert_eq!(piece.to, found.len() as u64);
                let left: Vec<u64> = places(piece.left, piece.from).collect();
                prop_assert_eq!(&left[..], &places(rows, 0).collect::<Vec<_>>()[found.len()..]);
                found.extend(places(piece.rows, piece.from));
            }
            prop_assert_eq!(found, places(rows, 0).collect::<Vec<_>>());
        }
    }

    #[test]
    fn dense_tensors_are_one_run() {
        assert_eq!(rows(&[2, 3, 5], &[15, 5, 1]).unwrap(), Rows::contiguous(120));
        assert_eq!(rows(&[], &[]).unwrap(), Rows::contiguous(4));
        assert_eq!(rows(&[4, 1], &[1, 1]).unwrap(), Rows::contiguous(16));
        assert_eq!(rows(&[0, 3], &[3, 1]).unwrap().dense_bytes(), 0);
    }

    #[test]
    fn padding_between_rows_is_a_pitch() {
        assert_eq!(rows(&[4, 5], &[8, 1]).unwrap(), Rows { count: 4, bytes: 20, pitch: 32 });
        assert_eq!(rows(&[2, 2, 5], &[16, 8, 1]).unwrap(), Rows { count: 4, bytes: 20, pitch: 32 });
        assert_eq!(rows(&[3, 1], &[4, 1]).unwrap(), Rows { count: 3, bytes: 4, pitch: 16 });
    }

    #[test]
    fn other_strides_are_refused() {
        for (shape, strides) in [
            (&[4usize, 4][..], &[1usize, 4][..]),
            (&[4, 4], &[2, 1]),
            (&[2, 2, 5], &[17, 8, 1]),
            (&[4, 4], &[0, 1]),
            (&[4, 4], &[1]),
        ] {
            assert!(matches!(rows(shape, strides), Err(IoError::UnsupportedStrides(_))), "{shape:?} {strides:?}");
        }
        assert!(matches!(Rows::of(&[17].into(), &[1].into(), 4, 64), Err(IoError::Unsupported(_))));
        assert!(Rows::of(&[usize::MAX, 4].into(), &[4, 1].into(), 4, 64).is_err());
    }

    proptest! {
        #[test]
        fn a_layout_reads_back_by_its_own_strides(
            shape in proptest::collection::vec(0usize..7, 0..4), elem in 1usize..17
        ) {
            let descriptor = MemoryLayoutDescriptor::optimized(shape.clone(), elem);
            let (rows, strides) = descriptor.layout();
            prop_assert_eq!(rows.dense_bytes(), descriptor.shape.dense_bytes(elem));
            let again = Rows::of(&descriptor.shape, &strides, elem, rows.extent()).unwrap();
            prop_assert_eq!(again.dense_bytes(), rows.dense_bytes());
            prop_assert_eq!(again.extent(), rows.extent());
            // Each element lies at the same byte of the dense bytes, by index or by row.
            let count: usize = shape.iter().product();
            for flat in 0..count {
                let (mut rest, mut at) = (flat, 0);
                for (n, stride) in shape.iter().zip(&strides.0).rev() {
                    at += rest % n * stride;
                    rest /= n;
                }
                let dense = (flat * elem) as u64;
                let by_row = dense / again.bytes * again.pitch + dense % again.bytes;
                prop_assert_eq!((at * elem) as u64, by_row);
            }
        }
    }
}
