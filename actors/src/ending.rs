//! Whether an actor will not go on: what the registry asks, and what others wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// The end of one run of an actor, from its first sign.
#[derive(Debug)]
pub(crate) struct Ending {
    lost: AtomicBool,
    begun: watch::Sender<bool>,
}

impl Default for Ending {
    fn default() -> Self {
        Self { lost: AtomicBool::new(false), begun: watch::Sender::new(false) }
    }
}

impl Ending {
    /// The device is lost. True the first time.
    pub(crate) fn lose(&self) -> bool {
        let first = !self.lost.swap(true, Ordering::Relaxed);
        if first {
            self.begin();
        }
        first
    }

    /// Whether the device is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// The actor takes no more work: it is lost, told to stop, or gone.
    pub(crate) fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Whether it takes no more work.
    pub(crate) fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// For those who wait for it.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.begun.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::block_on;

    #[test]
    fn a_loss_is_told_once_and_ends_every_wait() {
        let ending = Ending::default();
        let (mut early, mut again) = (ending.watch(), ending.watch());
        assert!(!ending.has_begun() && !ending.is_lost());
        assert_eq!([ending.lose(), ending.lose()], [true, false]);
        assert!(ending.has_begun() && ending.is_lost());
        for receiver in [&mut early, &mut again, &mut ending.watch()] {
            assert!(block_on(receiver.wait_for(|begun| *begun)).is_ok());
        }
    }

    #[test]
    fn an_actor_that_stops_has_not_lost_its_device() {
        let ending = Ending::default();
        ending.begin();
        assert!(ending.has_begun() && !ending.is_lost());
    }
}
