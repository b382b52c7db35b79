//! Pages of plain memory, and single commands on them.

use super::program::Program;
use crate::engine::command::{Groups, PageId, RowCopy, Span};
use crate::kernel::{BufferAccess, INLINE_BUFFERS};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes on which a page starts, and which the device tells as its alignment: a cache line, and more than any type
/// that a closure may cast its buffers to.
pub(crate) const PAGE_ALIGNMENT: u64 = 64;
/// Bytes of the words that a block is made of.
const WORD: usize = size_of::<u128>();

/// Zeroed memory that starts on [`PAGE_ALIGNMENT`].
#[derive(Debug)]
pub(crate) struct Block {
    words: Vec<u128>,
    /// Where the first aligned byte is.
    start: usize,
    len: usize,
}

impl Block {
    /// `len` bytes, if the allocator has them. The system's zero pages are not touched before they are used.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let words = len.checked_add(PAGE_ALIGNMENT as usize - WORD)?.div_ceil(WORD);
        let words: Vec<u128> = bytemuck::try_zeroed_vec(words).ok()?;
        let start = bytemuck::cast_slice::<u128, u8>(&words).as_ptr().align_offset(PAGE_ALIGNMENT as usize);
        Some(Self { words, start, len })
    }

    /// A copy of `bytes`.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        let Some(mut block) = Self::zeroed(bytes.len()) else {
            unreachable!("no memory for a copy of {} bytes", bytes.len())
        };
        block.bytes_mut().copy_from_slice(bytes);
        block
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.start..][..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[self.start..][..self.len]
    }
}

/// One page. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    bytes: u64,
    block: Arc<Mutex<Block>>,
}

impl Page {
    /// `bytes` zeroed bytes, if the allocator has them.
    pub(crate) fn zeroed(bytes: u64) -> Option<Self> {
        let block = Block::zeroed(usize::try_from(bytes).ok()?)?;
        Some(Self { bytes, block: Arc::new(Mutex::new(block)) })
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A copy of a range.
    pub(crate) fn read(&self, at: Span) -> Vec<u8> {
        let range = self.range(at);
        self.lock().bytes()[range].to_vec()
    }

    /// A copy of a range, aligned as a page.
    pub(crate) fn read_aligned(&self, at: Span) -> Block {
        let range = self.range(at);
        Block::copy_of(&self.lock().bytes()[range])
    }

    /// Overwrites a range.
    pub(crate) fn write(&self, at: Span, bytes: &[u8]) {
        assert!(bytes.len() as u64 == at.size, "{} bytes for a range of {}", bytes.len(), at.size);
        let range = self.range(at);
        self.lock().bytes_mut()[range].copy_from_slice(bytes);
    }

    /// The range as indices. It lies inside the page (V8).
    pub(crate) fn range(&self, at: Span) -> Range<usize> {
        let end = at.offset.checked_add(at.size);
        assert!(end.is_some_and(|end| end <= self.bytes), "{at:?} ends outside its page of {} bytes", self.bytes);
        at.offset as usize..(at.offset + at.size) as usize
    }

    /// A closure that panics leaves its buffers half written, which the failure tells: the page itself is good.
    fn lock(&self) -> MutexGuard<'_, Block> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pages by id.
///
/// Only one thread runs commands on the pages of a store; others hold at most one page at a time.
#[derive(Debug, Default)]
pub(crate) struct Store(HashMap<PageId, Page>);

impl Store {
    pub(crate) fn insert(&mut self, id: PageId, page: Page) {
        let old = self.0.insert(id, page);
        assert!(old.is_none(), "{id:?} is given out twice");
    }

    pub(crate) fn remove(&mut self, id: PageId) -> Page {
        let Some(page) = self.0.remove(&id) else { unreachable!("{id:?} is freed and not known") };
        page
    }

    pub(crate) fn page(&self, id: PageId) -> &Page {
        let Some(page) = self.0.get(&id) else { unreachable!("{id:?} is used and not known") };
        page
    }

    /// Sets a range to zero.
    pub(crate) fn zero(&self, at: Span) {
        let page = self.page(at.page);
        let range = page.range(at);
        page.lock().bytes_mut()[range].fill(0);
    }

    /// Copies rows.
    pub(crate) fn copy(&self, copy: &RowCopy) {
        if copy.count == 0 || copy.bytes == 0 {
            return;
        }
        check_rows(copy);
        let (from, to) = (self.page(copy.from.page), self.page(copy.to.page));
        let (source, target) = (from.range(copy.from).start, to.range(copy.to).start);
        let (bytes, from_pitch, to_pitch) = (copy.bytes as usize, copy.from_pitch as usize, copy.to_pitch as usize);
        let rows = (0..copy.count as usize).map(|row| (source + row * from_pitch, target + row * to_pitch));
        if copy.from.page == copy.to.page {
            let mut block = to.lock();
            rows.for_each(|(source, target)| block.bytes_mut().copy_within(source..source + bytes, target));
        } else {
            let (source_block, mut target_block) = (from.lock(), to.lock());
            let (source_bytes, target_bytes) = (source_block.bytes(), target_block.bytes_mut());
            rows.for_each(|(source, target)| {
                target_bytes[target..][..bytes].copy_from_slice(&source_bytes[source..][..bytes]);
            });
        }
    }

    /// The group counts as they are now.
    pub(crate) fn groups(&self, groups: Groups) -> [u32; 3] {
        match groups {
            Groups::Direct(groups) => groups,
            Groups::Indirect(at) => {
                assert!(at.size >= 12, "group counts in {at:?}: three u32 are needed");
                let bytes = self.page(at.page).read(Span { size: 12, ..at });
                [0, 4, 8].map(|i| u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]))
            }
        }
    }

    /// Runs a program on its buffers in place. Its pages are locked meanwhile.
    ///
    /// # Errors
    /// What the program panicked with.
    pub(crate) fn dispatch(
        &self,
        program: &Program,
        groups: Groups,
        buffers: &[Span],
        info: &[u8],
    ) -> Result<(), String> {
        let groups = self.groups(groups);
        let mut copies = self.aliased_reads(program, buffers);
        let carved = |&index: &usize| buffers[index].size > 0 && copies.iter().all(|(copied, _)| *copied != index);
        let mut order: SmallVec<[usize; INLINE_BUFFERS]> = (0..buffers.len()).filter(carved).collect();
        order.sort_unstable_by_key(|&index| (buffers[index].page, buffers[index].offset));
        let mut pages: SmallVec<[PageId; INLINE_BUFFERS]> = order.iter().map(|&index| buffers[index].page).collect();
        pages.dedup();
        let mut locked: SmallVec<[(&Page, MutexGuard<'_, Block>); INLINE_BUFFERS]> =
            pages.iter().map(|&id| self.page(id)).map(|page| (page, page.lock())).collect();

        // Buffers of no bytes keep the empty slice that all start with.
        let mut slices: SmallVec<[&mut [u8]; INLINE_BUFFERS]> = buffers.iter().map(|_| Default::default()).collect();
        let mut order = order.into_iter().peekable();
        for (id, (page, block)) in pages.iter().zip(&mut locked) {
            let (mut rest, mut at) = (block.bytes_mut(), 0);
            while let Some(index) = order.next_if(|&index| buffers[index].page == *id) {
                let range = page.range(buffers[index]);
                assert!(at <= range.start, "{:?} overlaps another buffer of its dispatch", buffers[index]);
                let (_, tail) = rest.split_at_mut(range.start - at);
                (slices[index], rest) = tail.split_at_mut(range.len());
                at = range.end;
            }
        }
        for (index, copy) in &mut copies {
            slices[*index] = copy.bytes_mut();
        }
        program.call(groups, &mut slices, info)
    }

    /// Copies of the buffers that the program only reads and that overlap another of its buffers: two slices of
    /// the same bytes cannot be made.
    fn aliased_reads(&self, program: &Program, buffers: &[Span]) -> Vec<(usize, Block)> {
        let mut copies = Vec::new();
        for (index, span) in buffers.iter().enumerate() {
            if program.access(index) == BufferAccess::Read
                && buffers.iter().enumerate().any(|(other, at)| other != index && overlap(span, at))
            {
                copies.push((index, self.page(span.page).read_aligned(*span)));
            }
        }
        copies
    }
}

/// Whether two ranges share a byte.
pub(crate) fn overlap(a: &Span, b: &Span) -> bool {
    let shared_end = (a.offset.saturating_add(a.size)).min(b.offset.saturating_add(b.size));
    a.page == b.page && a.offset.max(b.offset) < shared_end
}

/// Asserts that rows lie inside the ranges of their sides (V8), and the sides apart.
pub(crate) fn check_rows(copy: &RowCopy) {
    if copy.count == 0 || copy.bytes == 0 {
        return;
    }
    for (side, pitch) in [(copy.from, copy.from_pitch), (copy.to, copy.to_pitch)] {
        let extent = (copy.count - 1).checked_mul(pitch).and_then(|start| start.checked_add(copy.bytes));
        assert!(extent.is_some_and(|extent| extent <= side.size), "rows of {copy:?} end outside of {side:?}");
    }
    assert!(!overlap(&copy.from, &copy.to), "the sides of {copy:?} overlap");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{CubeKernel, HostKernel, KernelOptions};
    use crate::port::Compiler;

    fn span(page: u32, offset: u64, size: u64) -> Span {
        Span { page: PageId(page), offset, size }
    }

    fn store(pages: &[u64]) -> Store {
        let mut store = Store::default();
        for (id, &bytes) in pages.iter().enumerate() {
            store.insert(PageId(id as u32), Page::zeroed(bytes).unwrap());
        }
        store
    }

    fn program(
        accesses: Option<Vec<BufferAccess>>,
        f: impl Fn([u32; 3], &mut [&mut [u8]], &[u8]) + Send + Sync + 'static,
    ) -> Program {
        let kernel = HostKernel::new("test", f);
        let source = kernel.source(&crate::host::target_properties()).unwrap();
        let options = KernelOptions { addresses: accesses, ..KernelOptions::default() };
        super::super::HostCompiler::default().compile("test", source, &options).unwrap().pipeline
    }

    fn panics(f: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
    }

    #[test]
    fn pages_are_aligned_and_zero_and_may_be_refused() {
        for bytes in [0, 1, 63, 64, 65, 4096] {
            let mut block = Block::zeroed(bytes).unwrap();
            assert_eq!(block.bytes(), vec![0; bytes]);
            assert!((block.bytes_mut().as_ptr().addr()).is_multiple_of(PAGE_ALIGNMENT as usize) || bytes == 0);
        }
        assert!(Page::zeroed(u64::MAX).is_none());
        assert!(Page::zeroed(1 << 62).is_none());
    }

    #[test]
    fn rows_are_copied_within_a_page_and_between_pages() {
        for to_page in [0, 1] {
            let store = store(&[64, 64]);
            store.page(PageId(0)).write(span(0, 0, 8), &[1, 2, 3, 4, 5, 6, 7, 8]);
            store.copy(&RowCopy {
                from: span(0, 1, 7),
                from_pitch: 3,
                to: span(to_page, 32, 12),
                to_pitch: 5,
                count: 3,
                bytes: 1,
            });
            assert_eq!(store.page(PageId(to_page)).read(span(to_page, 32, 12)), [2, 0, 0, 0, 0, 5, 0, 0, 0, 0, 8, 0]);
        }
    }

    #[test]
    fn zeroing_touches_its_range_only() {
        let store = store(&[8]);
        store.page(PageId(0)).write(span(0, 0, 8), &[9; 8]);
        store.zero(span(0, 2, 4));
        assert_eq!(store.page(PageId(0)).read(span(0, 0, 8)), [9, 9, 0, 0, 0, 0, 9, 9]);
    }

    #[test]
    fn ranges_outside_of_pages_are_refused() {
        let store = store(&[8]);
        let rows = |from_size, count| RowCopy {
            from: span(0, 0, from_size),
            from_pitch: 2,
            to: span(0, 4, 4),
            to_pitch: 2,
            count,
            bytes: 2,
        };
        assert!(panics(|| store.zero(span(0, 4, 5))));
        assert!(panics(|| store.zero(span(0, u64::MAX, 2))));
        assert!(panics(|| store.page(PageId(0)).write(span(0, 0, 2), &[1])));
        assert!(panics(|| store.zero(span(1, 0, 4))));
        assert!(panics(|| store.copy(&rows(2, 2))), "rows past their range");
        assert!(panics(|| store.copy(&rows(5, 2))), "sides overlap");
        store.copy(&rows(4, 2));
    }

    #[test]
    fn a_dispatch_gets_its_buffers_in_order_whatever_their_places() {
        let store = store(&[256, 256]);
        let buffers = [span(1, 64, 2), span(0, 128, 3), span(1, 0, 0), span(0, 0, 1), span(1, 65, 0), span(1, 66, 4)];
        let number = program(None, |groups, buffers, info| {
            assert_eq!((groups, info), ([1, 2, 3], &[7, 7][..]));
            for (index, buffer) in buffers.iter_mut().enumerate() {
                buffer.fill(index as u8 + 1);
            }
        });
        store.dispatch(&number, Groups::Direct([1, 2, 3]), &buffers, &[7, 7]).unwrap();
        for (index, &at) in buffers.iter().enumerate() {
            assert_eq!(store.page(at.page).read(at), vec![index as u8 + 1; at.size as usize]);
        }
        assert_eq!(store.page(PageId(1)).read(span(1, 63, 9)), [0, 1, 1, 6, 6, 6, 6, 0, 0]);
    }

    #[test]
    fn indirect_counts_are_read_when_the_dispatch_runs() {
        let store = store(&[64]);
        let see = program(None, |groups, buffers, _| buffers[0].copy_from_slice(bytemuck::cast_slice(&groups)));
        let groups = Groups::Indirect(span(0, 16, 12));
        store.dispatch(&see, groups, &[span(0, 0, 12)], &[]).unwrap();
        assert_eq!(store.page(PageId(0)).read(span(0, 0, 12)), [0; 12], "no groups, no run");
        store.page(PageId(0)).write(span(0, 16, 12), bytemuck::cast_slice(&[4u32, 5, 6]));
        store.dispatch(&see, groups, &[span(0, 0, 12)], &[]).unwrap();
        assert_eq!(store.groups(Groups::Indirect(span(0, 0, 12))), [4, 5, 6]);
    }

    #[test]
    fn written_buffers_may_not_overlap_and_read_ones_may() {
        let store = store(&[64]);
        store.page(PageId(0)).write(span(0, 0, 4), &[1, 2, 3, 4]);
        let sum = |_: [u32; 3], buffers: &mut [&mut [u8]], _: &[u8]| {
            for i in 0..buffers[2].len() {
                buffers[2][i] = buffers[0][i] + buffers[1][i];
            }
        };
        let buffers = [span(0, 0, 3), span(0, 1, 3), span(0, 32, 3)];
        let undeclared = program(None, sum);
        assert!(panics(|| drop(store.dispatch(&undeclared, Groups::Direct([1; 3]), &buffers, &[]))));
        let declared = program(Some(vec![BufferAccess::Read, BufferAccess::Read, BufferAccess::Write]), sum);
        store.dispatch(&declared, Groups::Direct([1; 3]), &buffers, &[]).unwrap();
        assert_eq!(store.page(PageId(0)).read(span(0, 32, 3)), [3, 5, 7]);
    }

    #[test]
    fn a_panic_leaves_the_pages_usable() {
        let store = store(&[8]);
        let broken = program(None, |_, buffers, _| {
            buffers[0][0] = 5;
            panic!("half-way");
        });
        let reason = store.dispatch(&broken, Groups::Direct([1; 3]), &[span(0, 0, 8)], &[]).unwrap_err();
        assert_eq!(reason, "test panicked: half-way");
        store.zero(span(0, 0, 8));
        assert_eq!(store.page(PageId(0)).read(span(0, 0, 8)), [0; 8]);
    }
}
