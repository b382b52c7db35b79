//! Whether commands that touch the same bytes are ordered: the slow and obvious way.

use crate::host::overlap;
use crate::kernel::BufferAccess;
use crate::port::Span;

/// Two commands of which one writes what the other touches, and no barrier between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// Which command came first, counted from zero.
    pub first: u64,
    /// Which came after it.
    pub second: u64,
    /// What the first touches there.
    pub at: Span,
}

/// Compares each command with all others since the last barrier.
///
/// Only barriers order: that the first command was done when the second was submitted does not count, for a device
/// makes writes visible to later commands by a barrier only.
#[derive(Debug, Default)]
pub struct OrderChecker {
    window: Vec<(u64, Vec<(Span, BufferAccess)>)>,
    commands: u64,
    conflicts: Vec<Conflict>,
}

impl OrderChecker {
    /// No commands.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next command, with all that it touches.
    pub fn command(&mut self, accesses: &[(Span, BufferAccess)]) {
        let second = self.commands;
        for (first, earlier) in &self.window {
            let meets = |(at, before): &&(Span, BufferAccess)| {
                accesses.iter().any(|(span, access)| (before.writes() || access.writes()) && overlap(at, span))
            };
            if let Some(&(at, _)) = earlier.iter().find(meets) {
                self.conflicts.push(Conflict { first: *first, second, at });
            }
        }
        self.window.push((second, accesses.to_vec()));
        self.commands += 1;
    }

    /// Orders all commands before it against all after it.
    pub fn barrier(&mut self) {
        self.window.clear();
    }

    /// The conflicts so far.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::PageId;
    use BufferAccess::{Read, ReadWrite, Write};

    fn at(page: u32, offset: u64, size: u64, access: BufferAccess) -> (Span, BufferAccess) {
        (Span { page: PageId(page), offset, size }, access)
    }

    fn conflicts(first: (Span, BufferAccess), second: (Span, BufferAccess)) -> usize {
        let mut checker = OrderChecker::new();
        checker.command(&[at(9, 0, 1, Write), first]);
        checker.command(&[at(8, 0, 1, Write), second]);
        checker.conflicts().len()
    }

    #[test]
    fn commands_conflict_where_one_writes_what_the_other_touches() {
        for (first, second, expected) in
            [(Read, Read, 0), (Read, Write, 1), (Write, Read, 1), (Write, Write, 1), (ReadWrite, Read, 1)]
        {
            assert_eq!(conflicts(at(0, 0, 8, first), at(0, 4, 8, second)), expected, "{first:?} {second:?}");
        }
        assert_eq!(conflicts(at(0, 0, 8, Write), at(0, 8, 8, Write)), 0, "side by side");
        assert_eq!(conflicts(at(0, 0, 8, Write), at(1, 0, 8, Write)), 0, "on two pages");
        assert_eq!(conflicts(at(0, 0, 8, Write), at(0, 4, 0, Write)), 0, "no bytes");
    }

    #[test]
    fn a_barrier_orders_all_before_and_after() {
        let mut checker = OrderChecker::new();
        let write = at(0, 0, 4, Write);
        checker.command(&[write]);
        checker.command(&[at(0, 4, 4, Write)]);
        checker.barrier();
        checker.command(&[write]);
        assert_eq!(checker.conflicts(), []);
        checker.command(&[write, write]);
        assert_eq!(checker.conflicts(), [Conflict { first: 2, second: 3, at: write.0 }]);
    }
}
