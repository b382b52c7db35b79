//! The thread that waits for the device, so that the actor does not.

use crate::timeline::Timeline;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vkactor_actors::engine::command::TimelineValue;
use vkactor_actors::mailbox::Mailbox;
use vkactor_actors::message::Event;
use vkactor_actors::port::DeviceError;

/// How long one wait in the driver lasts. A driver that loses a device may never end a wait, so none is long.
const SLICE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 500 });
/// How often a wait without progress is reported.
const STALL_REPORT: Duration = Duration::from_millis(if cfg!(test) { 30 } else { 5000 });

/// Waits for values of one timeline and posts that they are reached. Asleep while nothing is watched.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    orders: Mutex<Orders>,
    bell: Condvar,
}

#[derive(Default)]
struct Orders {
    /// Values to wait for, rising.
    values: VecDeque<u64>,
    stop: bool,
}

impl Watcher {
    /// Starts the thread. It polls for `spin` before each wait in the driver.
    ///
    /// # Errors
    /// What starting a thread gives.
    pub(crate) fn start(timeline: Arc<Timeline>, mailbox: Mailbox, spin: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { orders: Mutex::new(Orders::default()), bell: Condvar::new() });
        let watch = Watch { shared: shared.clone(), timeline, mailbox, spin };
        let thread = std::thread::Builder::new().name("vkactor-watcher".into()).spawn(move || watch.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Posts once `value` is reached. Values that are watched already are not watched twice.
    pub(crate) fn watch(&self, value: u64) {
        let mut orders = self.shared.lock();
        if orders.values.back().is_none_or(|last| *last < value) {
            orders.values.push_back(value);
            self.shared.bell.notify_one();
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("values", &self.shared.lock().values).finish_non_exhaustive()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the watcher thread panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until there is a value to wait for; nothing when it is time to stop.
    fn next(&self) -> Option<u64> {
        let idle = |orders: &mut Orders| orders.values.is_empty() && !orders.stop;
        let orders = self.bell.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        orders.values.front().copied().filter(|_| !orders.stop)
    }

    fn is_stopped(&self) -> bool {
        self.lock().stop
    }

    /// Strikes out what is reached.
    fn strike(&self, reached: u64) {
        self.lock().values.retain(|value| *value > reached);
    }
}

/// The thread's own part.
struct Watch {
    shared: Arc<Shared>,
    timeline: Arc<Timeline>,
    mailbox: Mailbox,
    spin: Duration,
}

impl Watch {
    fn run(self) {
        while let Some(value) = self.shared.next() {
            match self.wait(value) {
                Ok(None) => return,
                Ok(Some(reached)) => {
                    self.shared.strike(reached);
                    self.mailbox.post(Event::Progress(TimelineValue(reached)));
                }
                Err(error) => {
                    self.mailbox.post(Event::Lost(error.to_string()));
                    return;
                }
            }
        }
    }

    /// How far the timeline is once `value` is reached; nothing when it is time to stop.
    fn wait(&self, value: u64) -> Result<Option<u64>, DeviceError> {
        let started = Instant::now();
        while started.elapsed() < self.spin {
            let reached = self.timeline.reached()?;
            if reached >= value {
                return Ok(Some(reached));
            }
            std::hint::spin_loop();
        }
        let (mut seen, mut moved, mut reports) = (0, started, 0);
        loop {
            self.timeline.wait(value, SLICE)?;
            let reached = self.timeline.reached()?;
            if reached >= value {
                return Ok(Some(reached));
            }
            if self.shared.is_stopped() {
                return Ok(None);
            }
            if reached > seen {
                (seen, moved, reports) = (reached, Instant::now(), 0);
            }
            let still = moved.elapsed();
            if still >= STALL_REPORT * (reports + 1) {
                reports += 1;
                self.mailbox.post(Event::Stalled(still));
            }
        }
    }
}
