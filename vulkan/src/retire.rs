//! What pending submissions still name, each with the value after which it is free (V3).

use std::collections::VecDeque;

/// Things in the order of the values that free them.
#[derive(Debug)]
pub(crate) struct RetireList<T> {
    waiting: VecDeque<(u64, T)>,
}

impl<T> RetireList<T> {
    pub(crate) fn new() -> Self {
        Self { waiting: VecDeque::new() }
    }

    /// `item` is free once `value` is reached. Values do not fall.
    pub(crate) fn retire(&mut self, value: u64, item: T) {
        let last = self.waiting.back().map_or(0, |(last, _)| *last);
        assert!(value >= last, "something retires at {value} behind {last}");
        self.waiting.push_back((value, item));
    }

    /// Takes what is free at `reached`.
    pub(crate) fn take(&mut self, reached: u64) -> Option<T> {
        self.waiting.pop_front_if(|(value, _)| *value <= reached).map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_before_its_value_is_reached() {
        let mut list = RetireList::new();
        list.retire(2, 'a');
        list.retire(2, 'b');
        list.retire(5, 'c');
        assert_eq!(list.take(1), None);
        assert_eq!((list.take(4), list.take(4), list.take(4)), (Some('a'), Some('b'), None));
        assert_eq!((list.take(5), list.take(9)), (Some('c'), None));
    }
}
